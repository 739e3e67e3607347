package main

import (
	"cmp"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/nic"
)

func newPs() *cobra.Command {
	var options clientOptions
	var errors bool
	command := &cobra.Command{
		Use:   "ps",
		Short: "List the programs on the NIC, with their queue pairs, connections and regions",
		Long: "List the programs on the NIC, with their queue pairs, connections and regions.\n\n" +
			"--errors tells what failed instead, the newest last: completions with an error,\n" +
			"peers' requests that were refused, refused verbs and posts, failed connections; each\n" +
			"with what the NIC saw. Errors of programs that have ended stay for some minutes.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			status, err := options.status()
			if err != nil {
				return err
			}
			if errors {
				if options.json {
					return printJSON(c.OutOrStdout(), errorReport{status.Errors})
				}
				printErrors(c.OutOrStdout(), status.Errors)
				return nil
			}
			report := psReport{Contexts: status.Contexts, CMIDs: status.CMIDs}
			if options.json {
				return printJSON(c.OutOrStdout(), report)
			}
			return printPs(c.OutOrStdout(), report)
		},
	}
	options.register(command)
	command.Flags().BoolVar(&errors, "errors", false, "tell what failed, and what the NIC saw")
	return command
}

// psReport is who uses the NIC, and for what.
type psReport struct {
	Contexts []nic.ContextStatus `json:"contexts"`
	CMIDs    []nic.CMIDStatus    `json:"cm_ids"`
}

// listing prints sections of aligned columns; a section without rows is not printed.
type listing struct {
	out   io.Writer
	table *tabwriter.Writer
	begun bool
}

func (l *listing) section(header string, rows func(row func(format string, args ...any))) {
	printed := false
	rows(func(format string, args ...any) {
		if !printed {
			if l.begun {
				fmt.Fprintln(l.out)
			}
			l.table = tabwriter.NewWriter(l.out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(l.table, header)
		}
		printed, l.begun = true, true
		fmt.Fprintf(l.table, format+"\n", args...)
	})
	if printed {
		_ = l.table.Flush() // its only failure is the writer's, which the command line ignores
	}
}

// printPs prints what belongs to whom. Programs that have neither opened the device nor the
// connection manager have nothing on the NIC and are not listed.
func printPs(out io.Writer, report psReport) error {
	contexts := report.Contexts
	if len(contexts)+len(report.CMIDs) == 0 {
		_, err := fmt.Fprintln(out, "no program uses the NIC")
		return err
	}
	l := &listing{out: out}
	l.section("PROGRAM\tPID\tUSER\tPD\tMR\tREGISTERED\tCQ\tSRQ\tQP\tAH\tMW\tDEVICE MEMORY",
		func(row func(string, ...any)) {
			for _, c := range programs(contexts) {
				registered := uint64(0)
				for _, m := range c.MRs {
					if hasLength(m) {
						registered += m.Length
					}
				}
				row("%s\t%d\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%s", c.Program, c.PID,
					userName(c.UID), c.PDs, len(c.MRs), byteCount(registered), len(c.CQs),
					len(c.SRQs), len(c.QPs), c.AHs, c.MWs, byteCount(c.DMBytes))
			}
		})
	l.section("QPN\tOWNER\tDEVICE\tTYPE\tSTATE\tPEER\tMTU\tPENDING\tIN FLIGHT\tWINDOW\tRETRIES"+
		"\tLAST ERROR",
		func(row func(string, ...any)) {
			for _, c := range contexts {
				for _, q := range c.QPs {
					row("%#06x\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s", q.QPN, owner(c),
						dashed(c.Device), q.Type, q.State, peer(q), orDash(q.PathMTU),
						q.Pending, q.InFlight, q.Window, q.Retries, dashed(q.Error))
				}
			}
		})
	printStreams(l, contexts)
	printQueues(l, contexts)
	printCMIDs(l, report.CMIDs)
	return nil
}

// programs adds up what the contexts of one process have: one that uses librdmacm has a context of
// that library besides its own. Processes that the NIC cannot see all have PID 0, and stay apart.
func programs(contexts []nic.ContextStatus) []nic.ContextStatus {
	type process struct{ pid, uid uint32 }
	var out []nic.ContextStatus
	first := map[process]int{}
	for _, c := range contexts {
		at, isKnown := first[process{c.PID, c.UID}]
		if !isKnown || c.PID == 0 {
			first[process{c.PID, c.UID}] = len(out)
			out = append(out, c)
			continue
		}
		p := &out[at]
		p.PDs, p.AHs, p.MWs = p.PDs+c.PDs, p.AHs+c.AHs, p.MWs+c.MWs
		p.DMBytes += c.DMBytes
		p.MRs = slices.Concat(p.MRs, c.MRs)
		p.CQs = slices.Concat(p.CQs, c.CQs)
		p.SRQs = slices.Concat(p.SRQs, c.SRQs)
		p.QPs = slices.Concat(p.QPs, c.QPs)
	}
	return out
}

func printQueues(l *listing, contexts []nic.ContextStatus) {
	l.section("CQ\tOWNER\tENTRIES\tCOMPLETIONS\tSTATE", func(row func(string, ...any)) {
		for _, c := range contexts {
			for _, q := range c.CQs {
				state := "good"
				if q.Overrun {
					state = "overrun"
				}
				row("%d\t%s\t%d\t%d\t%s", q.Handle, owner(c), q.Entries, q.Pushed, state)
			}
		}
	})
	l.section("SRQ\tOWNER\tENTRIES\tPOSTED\tLIMIT\tTAGS\tUNEXPECTED\tHANDLED",
		func(row func(string, ...any)) {
			for _, c := range contexts {
				for _, q := range c.SRQs {
					row("%d\t%s\t%d\t%d\t%d\t%s", q.Handle, owner(c), q.Entries, q.Posted, q.Limit,
						tagColumns(q.Tags))
				}
			}
		})
	l.section("MR\tOWNER\tPD\tADDRESS\tLENGTH\tMAPPED\tACCESS\tKIND\tMW",
		func(row func(string, ...any)) {
			for _, c := range contexts {
				for _, m := range c.MRs {
					length := "all"
					if hasLength(m) {
						length = byteCount(m.Length)
					}
					row("%d\t%s\t%d\t%#x\t%s\t%s\t%s\t%s\t%d", m.Handle, owner(c), m.PD, m.Addr,
						length, byteCount(m.Mapped), dashed(m.Access), dashed(m.Kind), m.Windows)
				}
			}
		})
}

// hasLength reports a region that is a piece of memory: not one of everything, nor of nothing.
func hasLength(m nic.MRStatus) bool { return m.Kind != "implicit" && m.Kind != "null" }

// printCMIDs lists what the connection manager keeps for programs: listeners and connections.
func printCMIDs(l *listing, ids []nic.CMIDStatus) {
	l.section("CM ID\tOWNER\tDEVICE\tSTATE\tPORT SPACE\tTYPE\tLOCAL\tREMOTE\tQP\tPEER'S QP\tNOTE",
		func(row func(string, ...any)) {
			for _, i := range ids {
				note := "-"
				if i.WithoutTCP != "" {
					note = "without iWARP: " + i.WithoutTCP
				}
				row("%d\t%s[%d]\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", i.ID, i.Program, i.PID,
					cmp.Or(i.Device, "any"), i.State, i.PortSpace, i.Type, dashed(i.Local),
					dashed(i.Remote), qpn(i.QPN), qpn(i.DestQPN), note)
			}
		})
}

// printStreams lists the TCP connections of queue pairs of iWARP.
func printStreams(l *listing, contexts []nic.ContextStatus) {
	l.section("QPN\tOWNER\tTCP\tMPA\tCRC\tMARKERS\tMSS\tFPDU\tSENT\tRECEIVED\tUNSENT",
		func(row func(string, ...any)) {
			for _, c := range contexts {
				for _, q := range c.QPs {
					s := q.Stream
					if s == nil {
						continue
					}
					row("%#06x\t%s\t%s->%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s", q.QPN, owner(c),
						s.Local, s.Remote, s.Revision, works(s.CRC), markers(s), segment(s), s.FPDUMax,
						byteCount(s.BytesSent), byteCount(s.BytesReceived), unsent(s))
				}
			}
		})
}

// markers says in which direction there are some.
func markers(s *nic.StreamStatus) string {
	switch {
	case s.MarkersSent && s.MarkersReceived:
		return "both ways"
	case s.MarkersSent:
		return "sent"
	case s.MarkersReceived:
		return "received"
	}
	return "off"
}

// segment is the payload of TCP's segments, where bytes do not stay inside the NIC.
func segment(s *nic.StreamStatus) string {
	if s.IsInside {
		return "inside"
	}
	return strconv.Itoa(s.MSS)
}

func unsent(s *nic.StreamStatus) string {
	text := byteCount(uint64(max(s.Unsent, 0)))
	switch {
	case s.IsFull && s.IsInside:
		text += ", receiver waits"
	case s.IsFull:
		text += ", socket full"
	}
	return text
}

func owner(c nic.ContextStatus) string { return fmt.Sprintf("%s[%d]", c.Program, c.PID) }

func peer(q nic.QPStatus) string {
	switch {
	case q.Stream != nil:
		return q.Stream.Remote
	case q.Remote == "":
		return "-"
	}
	return fmt.Sprintf("%s QP %#06x", address(q.Remote), q.DestQPN)
}

func qpn(n uint32) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%#06x", n)
}

func dashed(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// userName falls back on the number, which is all that a container may know.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

// byteCount prints a size in the unit that keeps it short.
func byteCount(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if value == float64(uint64(value)) {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// tagColumns are those of a matching list, where there is one.
func tagColumns(t *nic.TagStatus) string {
	if t == nil {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%d of %d\t%d\t%d", t.Used, t.Room, t.Unexpected, t.Handled)
}
