"""The word that wakes the nodes of a cluster whose database tells nothing by itself (MySQL, MariaDB)."""
