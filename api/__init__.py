"""REST service and dashboard over the application that bootstrap builds."""
