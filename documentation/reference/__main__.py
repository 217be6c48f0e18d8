"""``python -m documentation.reference`` writes every page that is generated in seconds."""

from documentation.reference.pages import write_pages

write_pages()
