package iwarp

// MarksAt returns the marks of a stream n bytes after its first marker began, where an FPDU starts.
func MarksAt(n uint64) Marks { return Marks{at: uint16(n % MarkerInterval)} }
