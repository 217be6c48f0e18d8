"""The store on SQLite (in a file or in memory) and on PostgreSQL."""
