// Package mad is management datagrams (IBTA volume 1, chapter 13): the header that they share, the
// messages of communication management (12.6, 12.11), the class port info of a class (13.4.8.1),
// and the IP addressing header in a REQ's private data (annex A11.4.2).
//
//	+-----------+--------------------------------------+--------------+
//	| Header 24 | fields of the message                | private data |
//	+-----------+--------------------------------------+--------------+
//	            '------------ DataLen, 232 bytes ---------------------'
//
// Each message has a file with its type, parser, appender and String. A type holds what the
// message says and not its reserved bits; every pattern of the bits that it holds is legal here,
// and what it means is for the communication manager to judge. Private data is always the whole
// field: a message does not say how much of it the sender used.
//
//	h, err := mad.ParseHeader(b)
//	switch h.Attribute {
//	case mad.AttributeREQ:
//		var m mad.REQ
//		err = m.Parse(b[mad.HeaderLen:])
//	…
//	b = h.Append(b[:0])
//	b = m.Append(b)
//
// No function here allocates except the String methods, and none panics on bytes from a peer.
package mad
