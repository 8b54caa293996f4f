package lab

// Shorthands: what may be written as a scalar.

// short reads pfc: true and pfc: false.
func (p *PFC) short(s string) error { return onOff(&p.Enabled, s) }

// short reads a scheme by its name.
func (s *Scheme) short(name string) error {
	s.Name = name
	return nil
}

// short reads a link by its ends.
func (l *CustomLink) short(ends string) error {
	l.Ends = ends
	return nil
}
