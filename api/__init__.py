"""The REST service and the dashboard, on top of the application that ``autotuner.service.build`` makes."""
