"""Tests in virtual time: hours of firing in moments, with faults from a seed."""
