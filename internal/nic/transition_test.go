package nic

import (
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestTransition_EdgesPerType lists the legal edges a second time, apart from the table.
func TestTransition_EdgesPerType(t *testing.T) {
	common := map[string]bool{
		"RESET INIT": true, "INIT INIT": true, "INIT RTR": true, "RTR RTS": true, "RTS RTS": true,
		"RTS SQD": true, "SQD RTS": true, "SQD SQD": true,
	}
	for _, typ := range []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD} {
		for from := sReset; from <= sError; from++ {
			for to := sReset; to <= sError; to++ {
				want := common[from.String()+" "+to.String()] || to == sReset || to == sError ||
					(typ != rdma.QPTypeRC && from == sSQE && to == sRTS)
				mask := rdma.QPAttrState
				if e, ok := transitions[typ][edge{from, to}]; ok {
					mask |= e.required
				}
				r := checkTransition(typ, edge{from, to}, mask)
				if (r == nil) != want {
					t.Errorf("%v %v→%v: refusal %v, legal %v", typ, from, to, r, want)
				}
				if r != nil && r.Errno != syscall.EINVAL {
					t.Errorf("%v %v→%v: errno %v", typ, from, to, r.Errno)
				}
			}
		}
	}
}

func TestTransition_MissingAttribute_IsNamed(t *testing.T) {
	rows := []struct {
		typ     rdma.QPType
		e       edge
		missing rdma.QPAttrMask
		name    string
	}{
		{rdma.QPTypeRC, edge{sReset, sInit}, rdma.QPAttrPKeyIndex, "pkey_index"},
		{rdma.QPTypeRC, edge{sInit, sRTR}, rdma.QPAttrMinRNRTimer, "min_rnr_timer"},
		{rdma.QPTypeRC, edge{sInit, sRTR}, rdma.QPAttrAV, "ah_attr"},
		{rdma.QPTypeRC, edge{sRTR, sRTS}, rdma.QPAttrRNRRetry, "rnr_retry"},
		{rdma.QPTypeUC, edge{sInit, sRTR}, rdma.QPAttrDestQPN, "dest_qp_num"},
		{rdma.QPTypeUD, edge{sReset, sInit}, rdma.QPAttrQKey, "qkey"},
		{rdma.QPTypeUD, edge{sRTR, sRTS}, rdma.QPAttrSQPSN, "sq_psn"},
	}
	for _, row := range rows {
		mask := rdma.QPAttrState | transitions[row.typ][row.e].required
		if r := checkTransition(row.typ, row.e, mask); r != nil {
			t.Errorf("%v: %v", row, r)
		}
		r := checkTransition(row.typ, row.e, mask&^row.missing)
		if r == nil || !strings.Contains(r.Reason, row.name) {
			t.Errorf("%v %v without %s: %v", row.typ, row.e, row.name, r)
		}
	}
}

func TestTransition_MisplacedAttribute_IsNamed(t *testing.T) {
	rows := []struct {
		typ   rdma.QPType
		e     edge
		extra rdma.QPAttrMask
		name  string
	}{
		{rdma.QPTypeUD, edge{sRTR, sRTS}, rdma.QPAttrTimeout, "timeout"},
		{rdma.QPTypeUC, edge{sRTR, sRTS}, rdma.QPAttrRetryCnt, "retry_cnt"},
		{rdma.QPTypeRC, edge{sReset, sInit}, rdma.QPAttrQKey, "qkey"},
		{rdma.QPTypeRC, edge{sRTS, sRTS}, rdma.QPAttrDestQPN, "dest_qp_num"},
		{rdma.QPTypeRC, edge{sRTS, sError}, rdma.QPAttrQKey, "qkey"},
		{rdma.QPTypeRC, edge{sRTS, sRTS}, 1 << 29, "0x20000000"},
	}
	for _, row := range rows {
		mask := rdma.QPAttrState | transitions[row.typ][row.e].required | row.extra
		r := checkTransition(row.typ, row.e, mask)
		if r == nil || !strings.Contains(r.Reason, row.name) {
			t.Errorf("%v %v with %s: %v", row.typ, row.e, row.name, r)
		}
	}
}

// TestModifyQP_PathMigration_IsRefused: the device has none and its capabilities say so, thus
// neither an alternate path nor a state of migration is taken.
func TestModifyQP_PathMigration_IsRefused(t *testing.T) {
	b := newBench(t)
	cq := b.cq(32, 0)
	q := b.rc(cq)
	q.connect(q.rsp.QPN)
	for _, mask := range []rdma.QPAttrMask{rdma.QPAttrAltPath, rdma.QPAttrPathMigState} {
		r := q.modify(abi.QPAttr{PathMigState: uint32(rdma.MigrationRearm)}, mask)
		if r == nil || r.Errno != syscall.EINVAL {
			t.Errorf("%v: %v", mask, r)
		}
	}
}
