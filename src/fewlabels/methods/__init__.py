"""Methods: support and query rows to an assignment of queries to classes."""
