"""What people do with learnt guidance: look at it, compare it, take it elsewhere, and decide which is in use."""
