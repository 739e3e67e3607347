package verbs

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
)

// A NIC whose replies make no sense is an error, not a crash, and costs no descriptor.
func TestCreate_SenselessGeometry_IsRefused(t *testing.T) {
	for name, bend := range map[string]func(any){
		"CQ of 3":        func(m any) { bendCQ(m, func(r *abi.CreateCQRsp) { r.Entries = 3 }) },
		"CQ of none":     func(m any) { bendCQ(m, func(r *abi.CreateCQRsp) { r.Entries = 0 }) },
		"CQ too long":    func(m any) { bendCQ(m, func(r *abi.CreateCQRsp) { r.Entries = 1 << 20 }) },
		"CQ of 2^31":     func(m any) { bendCQ(m, func(r *abi.CreateCQRsp) { r.Entries = 1 << 31 }) },
		"no doorbell":    func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.Doorbell = 1 << 20 }) },
		"SQ of 5":        func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.SQEntries = 5 }) },
		"SQ too narrow":  func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.SQStride = 8 }) },
		"SQ in the head": func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.SQOffset = 0 }) },
		"RQ outside":     func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.RQOffset = 1 << 31 }) },
		"memory missing": func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.Bytes = 1 << 30 }) },
		"much inline":    func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.MaxInline = 1 << 31 }) },
		"many entries":   func(m any) { bendQP(m, func(r *abi.CreateQPRsp) { r.MaxSendSGE = 1 << 30 }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, QPConfig{})
			before := descriptors(t)
			r.nic.mu.Lock()
			r.nic.bend = bend
			r.nic.mu.Unlock()
			_, err1 := r.ctx.CreateCQ(CQConfig{Entries: 64, PollOnly: true})
			_, err2 := r.pd.CreateQP(QPConfig{Type: QPTypeRC, SendCQ: r.cq})
			if err1 == nil && err2 == nil {
				t.Error("it was accepted")
			}
			// The fake keeps one descriptor of each queue that it made.
			if after := descriptors(t); after > before+2 {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func bendCQ(m any, f func(*abi.CreateCQRsp)) {
	if r, ok := m.(*abi.CreateCQRsp); ok {
		f(r)
	}
}

func bendQP(m any, f func(*abi.CreateQPRsp)) {
	if r, ok := m.(*abi.CreateQPRsp); ok {
		f(r)
	}
}
