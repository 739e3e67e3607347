// Package nictest gives the tests of the Go packages NICs to run on, in the test program and in
// processes of their own, and lets a test program play a part in another process:
//
//	func TestMain(m *testing.M) {
//		nictest.Main(m, map[string]func() error{"server": playServer})
//	}
//
//	socket, nic := nictest.StartProcess(t)
//	server := nictest.StartPart(t, "server", socket)
//	port := server.Line(t)
//
// A process that plays a part ends when the test program does, however that ends.
package nictest
