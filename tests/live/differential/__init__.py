"""What test_differential.py compares, and with what: generated documents, hard numbers, independent JCS libraries."""
