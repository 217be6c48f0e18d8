"""The examples of the OpenAPI document, made of real domain objects so that they cannot drift from the schema."""
