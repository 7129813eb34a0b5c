"""Tables, pictures and pages, made from records."""
