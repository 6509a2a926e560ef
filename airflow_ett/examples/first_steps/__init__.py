"""The smallest whole example; the ETT% tab shows it where a Dag has no training yet."""
