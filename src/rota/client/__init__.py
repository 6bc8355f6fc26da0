"""The SDK: what people import to define jobs in Python."""
