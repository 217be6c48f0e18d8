"""The examples of the OpenAPI document, made of real values of the core so that they cannot drift from the schema."""
