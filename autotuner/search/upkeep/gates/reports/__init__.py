"""What a gate found, as CI systems and people read it: JUnit XML, Markdown, a badge."""
