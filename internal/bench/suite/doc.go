// Package suite is the table of what is measured, beside whom, and what is aimed at: one host, two
// hosts, queue pairs by the thousand, an idle NIC, the simulator. It says which programs run; how
// they do is package tool's, and when, package bench's.
package suite
