"""What people read: tables, pictures and pages, made from records."""
