"""The release that this code belongs to."""

VERSION = "0.1.0"
