package interop

import (
	"regexp"
	"strings"
)

// difference is a way in which the kernel's device may differ from ours in a step of a program,
// with the reason: a fault of the driver, or a choice that the standard leaves.
type difference struct {
	why string
	// ours and kernel are both to be found in the step; an empty one is.
	ours, kernel string
	// forget matches the lines that are not compared then, of both.
	forget string
	// change is replaced by with, in both.
	change, with string
	// ends says that the two are not alike afterwards: the rest of the program is not compared.
	ends bool
}

// outcome matches the lines that tell what became of posted requests.
const outcome = `^  (send qp|recv qp|event|qp|area|cq)`

// differences are tried in this order until the step is the same. rxe is the driver of Linux 6.1,
// drivers/infiniband/sw/rxe, and its half in user space, providers/rxe of rdma-core.
//
//tidy:table
var differences = []difference{
	{
		why:  "rxe tells nobody of a request that it refuses (rxe_resp.c, do_class_ac_error and do_class_d1e_error); IBTA 9.9.3, 11.6.3.3",
		ours: `event (local access violation|invalid request local) work queue error`, forget: `event (local access violation|invalid request local)`,
	},
	{
		why:  "rxe has no such event; IBTA 11.6.3.1",
		ours: `event communication established`, forget: `event communication established`,
	},
	{
		why:    "rxe tells that the queue is drained, whether or not en_sqd_async_notify asked for it (rxe_comp.c, comp_check_sq_drain_done); IBTA 11.2.5.3",
		kernel: `event send queue drained`, forget: `event send queue drained`,
	},
	{
		why:  "rxe does not count a failed request as a solicited one (rxe_cq.c, rxe_cq_post); IBTA 11.4.2.2",
		ours: `([Ee]rror|exceeded)\n(.*\n)*.*cq\d woke`, forget: `^  cq\d woke`,
	},
	{
		why:  "rxe tells only users in the kernel that a key was invalidated (rxe_resp.c, do_complete); IBTA 11.4.2.1",
		ours: `recv qp\d \d+: opcode 128 length \d+ flags 0x8`, change: `(recv qp\d \d+: opcode 128 length \d+ flags) (0x8|0)\b`, with: `$1`,
	},
	{
		why:    "rxe does not keep cur_qp_state (rxe_qp.c, rxe_qp_to_attr)",
		kernel: `query_qp qp\d: ok state 3 cur [^3]`, change: `(query_qp qp\d: ok state 3) cur \d`, with: `$1`,
	},
	{
		why:  "rxe names no bad work request when the driver refuses by the queue pair's state (rxe.c, post_send_db), and queues receives nobody looks at",
		ours: `EINVAL after 0 of`, kernel: `change qp\d to state [0-2](.*\n)*.*EINVAL after [1-3] of`, change: `EINVAL after \d of \d`, with: `EINVAL`,
	},
	{
		why:  "rxe looks at its table of GIDs, which has more entries (rdma_get_gid_attr); either errno says that the entry is empty",
		ours: `(create_ah|modify_qp) .*EINVAL`, kernel: `(create_ah|modify_qp) .*ENODATA`, change: `ENODATA`, with: `EINVAL`,
	},
	{
		why:  "rxe fails a receive that is too short as one that is wrong (rxe_resp.c, send_data_in); IBTA 9.9.3, 11.6.2",
		ours: `recv qp\d \d+: local length error`, kernel: `recv qp\d \d+: local QP operation error`,
		change: `(recv qp\d \d+): local (QP operation|length) error`, with: `$1: too long`,
	},
	{
		why:  "and answers so; IBTA 9.9.3, 11.6.2",
		ours: `send qp\d \d+: remote invalid request error`, kernel: `send qp\d \d+: remote operation error`,
		change: `(send qp\d \d+): remote (operation|invalid request) error`, with: `$1: too long`,
	},
	{
		why:  "and a queue pair that is its own peer either gets the answer or is in error before",
		ours: `recv qp[67] \d+: local length error`, kernel: `recv qp[67] \d+: local QP operation error`, forget: outcome,
	},
	{
		why:  "between queue pairs of one SoftRNIC a message is one packet (docs/adr/0011-local-segments.md)",
		ours: `query_qp qp\d rq_psn`, change: `(query_qp qp\d rq_psn) \d+ sq_psn \d+`, with: `$1`,
	},
	{
		why:  "rxe fails a request with a wrong lkey as one that is malformed (rxe_mr.c, copy_data: EINVAL); IBTA 11.6.2",
		ours: `(send|recv) qp\d \d+: local protection error`, kernel: `(send|recv) qp\d \d+: local QP operation error`,
		change: `local QP operation error`, with: `local protection error`,
	},
	{
		why:  "rxe has no send queue error state; IBTA 10.3.1.6",
		ours: `qp\d is in state 5`, kernel: `qp\d is in state 6`,
		change: `(qp\d is in state) [56]`, with: `$1 5 or 6`,
	},
	{
		why:  "and so flushes receives as well",
		ours: `qp\d is in state 5`, kernel: `recv qp\d \d+: Work Request Flushed Error`, forget: `recv qp\d \d+: Work Request Flushed Error`,
	},
	{
		why:  "rxe flushes no receives that are posted in error (rxe_verbs.c: the library rings no doorbell); IBTA 10.3.1.7",
		ours: `recv qp\d \d+: Work Request Flushed Error`, kernel: `change qp\d to state 6`, forget: `recv qp\d \d+: Work Request Flushed Error`,
	},
	{
		why:    "rxe fails the receive and its queue pair when a datagram is too long for it; IBTA 9.8.3 lets drop it",
		kernel: `to qp[4-7] (.*\n)*.*recv qp[4-7] \d+: local QP operation error`, forget: outcome,
	},
	{
		why:  "rxe drops a datagram that is longer than the MTU and says that it was sent (IBTA C10-93.1.1); IBTA 11.6.2 and adapters call it a local length error",
		ours: `send qp[4-7] \d+: local length error`, kernel: `to qp[4-7] `, forget: outcome,
	},
	{
		why:    "rxe's library refuses an atomic whose address is not a multiple of 8 (rxe.c, validate_send_wr); here its peer does, IBTA 9.7.4.1.5",
		kernel: ` opcode [56] (.*\n)*.*post_send qp\d: EINVAL`, forget: outcome + `|^post_send`,
	},
	{
		why:  "rxe finds an operation that the queue pair does not have when it comes to it, here it is refused at once; IBTA 11.4.1.1",
		ours: ` wrong.*\n(.*\n)*.*post_send qp\d: EINVAL`, kernel: `post_send qp\d: (ok|EINVAL after [1-3])`, forget: outcome + `|^post_send`,
	},
	{
		why:  "a limit that is above what is posted: rxe tells with the next receive that it takes, here at once; IBTA 10.2.9.3",
		ours: `event SRQ limit reached`, forget: `event SRQ limit|query_srq`,
	},
	{
		why:  "rxe finds a wrong entry when it comes to it, here all are checked before the first packet goes out",
		ours: `send qp\d \d+: local protection error`, kernel: `send qp\d \d+: (transport retry|RNR retry|remote)|recv qp\d \d+: local QP`, forget: outcome,
	},
	{
		why:  "rxe looks for a receive before it looks at the key (rxe_resp.c, check_resource), here it is the other way round; IBTA 9.7.4.1 has both",
		ours: `send qp\d \d+: remote access error`, kernel: `send qp\d \d+: RNR retry counter exceeded|recv qp\d \d+: remote access error`, forget: outcome,
	},
	{
		why:  "rxe lets any queue pair invalidate a window of type 2 (rxe_mw.c, rxe_invalidate_mw); IBTA 10.6.7.2.6: only the one that it is bound to",
		ours: ` opcode 9 (.*\n)*.*remote access error`, kernel: ` opcode 9 (.*\n)*.*recv qp\d \d+: opcode`, forget: outcome,
	},
	{
		why:  "what a WRITE of UC that finds no receive for its immediate data has written before is free: packets, or here nothing; IBTA 9.8.2.2",
		ours: ` opcode 1 (.*\n)*post_send qp[2367]`, kernel: `area 2 is`, forget: `^  area 2`,
	},
	{
		why:    "rxe now and then flushes what follows an atomic that succeeded, though nothing failed; IBTA 10.3.1.7: the request that failed says so",
		kernel: ` opcode [56] (.*\n)*  send qp\d \d+: opcode [34]\n  send qp\d \d+: Work Request Flushed`, forget: outcome, ends: true,
	},
	{
		why:  "a queue pair that is its own peer and refuses a request either gets its answer or is in error before",
		ours: `send qp[67] \d+: Work Request Flushed`, kernel: `send qp[67] \d+: remote`, forget: outcome,
	},
	{
		why:  "rxe lets queue pairs of UC take receives from a shared queue; ibv_create_qp(3)",
		ours: `create_qp qp\d type 3 .* srq\d .*EINVAL`, kernel: `create_qp qp\d type 3 .* srq\d .*ok`, ends: true,
		forget: `^create_qp`,
	},
	{
		why:  "rxe hangs where it has to try again: behind a fence (rxe_req.c, rxe_is_fenced), or when more requests follow the one that found no receive (rxe_comp.c, COMPST_RNR_RETRY)",
		ours: `send qp\d \d+: (local protection error|(transport|RNR) retry counter exceeded)`, kernel: `qp\d hangs`, forget: outcome,
	},
}

// isAllowed tells whether a step differs in nothing but what may differ, and whether the rest of
// the program is of no use then.
func isAllowed(ours, kernel string) (allowed, ends bool) {
	o, k := ours, kernel
	for _, d := range differences {
		if !regexp.MustCompile(`(?m)`+d.ours).MatchString(ours) ||
			!regexp.MustCompile(`(?m)`+d.kernel).MatchString(kernel) {
			continue
		}
		ends = ends || d.ends
		for _, text := range []*string{&o, &k} {
			if d.change != "" {
				*text = regexp.MustCompile(`(?m)`+d.change).ReplaceAllString(*text, d.with)
			}
			if d.forget != "" {
				*text = forget(*text, regexp.MustCompile(d.forget))
			}
		}
		if o == k {
			return true, ends
		}
	}
	return false, ends
}

func forget(step string, what *regexp.Regexp) string {
	var kept strings.Builder
	for line := range strings.Lines(step) {
		if !what.MatchString(line) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
