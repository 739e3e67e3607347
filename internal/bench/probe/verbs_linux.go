package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/verbs"
)

// Operations of the program Verbs.
const (
	OperationWrite = "write"
	OperationRead  = "read"
	OperationAdd   = "fetch-add"
	OperationSend  = "send"
)

var opcodes = map[string]verbs.WROpcode{
	OperationWrite: verbs.WRWrite, OperationRead: verbs.WRRead, OperationAdd: verbs.WRFetchAdd,
	OperationSend: verbs.WRSend,
}

// side is one end of a connection.
type side struct {
	dev *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

// card is what one side has to know of the other.
type card struct {
	Endpoint verbs.Endpoint
	Addr     uint64
	RKey     verbs.Key
}

// receivesMax is how many receives the target of SENDs keeps posted.
const receivesMax = 512

func newSide(ctx context.Context, size, depth int) (*side, error) {
	s := new(side)
	var err error
	if s.dev, err = verbs.Open(ctx, ""); err != nil {
		return nil, err
	}
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return nil, err
	}
	s.cq, err = s.dev.CreateCQ(verbs.CQConfig{Entries: 2 * (depth + receivesMax), PollOnly: true})
	if err != nil {
		return nil, err
	}
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{
		Type: verbs.QPTypeRC, SendCQ: s.cq, MaxSendWR: depth, MaxRecvWR: receivesMax,
	})
	if err != nil {
		return nil, err
	}
	s.mr, err = s.pd.AllocMemory(max(size, 8), verbs.AccessAll)
	return s, err
}

func (s *side) card() (card, error) {
	point, err := s.qp.Endpoint()
	return card{Endpoint: point, Addr: s.mr.Addr(), RKey: s.mr.RKey()}, err
}

// measureVerbs lets a program use memory of another one, which takes no part, or send to it. It
// tells the bandwidth and the messages of DEPTH at a time, and of one at a time the time from the
// request to its completion, which is a round trip.
func measureVerbs(ctx context.Context, args []string) (bench.Sample, error) {
	var size, count, depth int
	if len(args) != 4 {
		return nil, errors.New("four arguments are wanted")
	}
	if err := numbers(args[1:], &size, &count, &depth); err != nil {
		return nil, err
	}
	opcode, known := opcodes[args[0]]
	if !known || depth == 0 {
		return nil, fmt.Errorf("no operation %q", args[0])
	}
	other, err := self(ctx, verbsPeer, args[0], args[1], args[2])
	if err != nil {
		return nil, err
	}
	in, err := other.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := other.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := other.Start(); err != nil {
		return nil, err
	}
	s, err := newSide(ctx, size, depth)
	if err != nil {
		return nil, err
	}
	defer s.dev.Close()
	mine, err := s.card()
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(in).Encode(mine); err != nil {
		return nil, err
	}
	var peer card
	if err := json.NewDecoder(out).Decode(&peer); err != nil {
		return nil, fmt.Errorf("the other side ended: %w", err)
	}
	if err := s.qp.ConnectTo(peer.Endpoint); err != nil {
		return nil, err
	}
	wr := verbs.SendWR{
		Opcode: opcode, Flags: verbs.SendSignaled, SGE: s.mr.SGE(0, size), CompareAdd: 1,
		RemoteAddr: peer.Addr, RKey: peer.RKey,
	}
	if _, err := s.repeat(&wr, min(count, 100), depth); err != nil { // what is slow the first time
		return nil, err
	}
	took, err := s.repeat(&wr, count, depth)
	if err != nil {
		return nil, err
	}
	_ = in.Close()
	if err := other.Wait(); err != nil {
		return nil, err
	}
	nanoseconds := float64(took.Nanoseconds())
	sample := bench.Sample{
		bench.Bandwidth: float64(size) * float64(count) / nanoseconds,
		bench.Rate:      float64(count) * 1e3 / nanoseconds,
	}
	if depth == 1 {
		sample[bench.Latency] = nanoseconds / float64(count) / 1e3
	}
	return sample, nil
}

// repeat does a request so often, with so many under way.
func (s *side) repeat(wr *verbs.SendWR, count, depth int) (time.Duration, error) {
	var wcs [64]verbs.WC
	begin := time.Now()
	for posted, done := 0, 0; done < count; {
		for posted < count && posted-done < depth {
			if _, err := s.qp.PostSend(*wr); err != nil {
				return 0, err
			}
			posted++
		}
		n, err := s.cq.Poll(wcs[:])
		if err != nil {
			return 0, err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return 0, err
			}
		}
		done += n
	}
	return time.Since(begin), nil
}

// playVerbsPeer owns the memory. It receives what is sent, and otherwise sleeps until its standard
// input ends.
func playVerbsPeer(ctx context.Context, args []string) (bench.Sample, error) {
	var size, count int
	if len(args) != 3 {
		return nil, errors.New("three arguments are wanted")
	}
	if err := numbers(args[1:], &size, &count); err != nil {
		return nil, err
	}
	s, err := newSide(ctx, size, 16)
	if err != nil {
		return nil, err
	}
	defer s.dev.Close()
	in := json.NewDecoder(os.Stdin)
	var peer card
	if err := in.Decode(&peer); err != nil {
		return nil, err
	}
	if err := s.qp.ConnectTo(peer.Endpoint); err != nil {
		return nil, err
	}
	isSend := args[0] == OperationSend
	if isSend {
		if err := s.receive(size, receivesMax); err != nil {
			return nil, err
		}
	}
	mine, err := s.card()
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(os.Stdout).Encode(mine); err != nil {
		return nil, err
	}
	if isSend {
		return nil, s.receiveAll(size, count+min(count, 100))
	}
	_ = in.Decode(&peer) // the end
	return nil, nil
}

func (s *side) receive(size, count int) error {
	for range count {
		if _, err := s.qp.PostRecv(verbs.RecvWR{SGE: s.mr.SGE(0, size)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) receiveAll(size, count int) error {
	var wcs [64]verbs.WC
	for done := 0; done < count; {
		n, err := s.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return err
			}
		}
		if err := s.receive(size, n); err != nil {
			return err
		}
		done += n
	}
	return nil
}
