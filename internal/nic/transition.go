package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/rdma"
)

// rule says which attributes a transition requires and which it may carry besides
// (IBTA 11.2.5.2, tables of the modify queue pair verb; ibv_modify_qp(3)).
type rule struct {
	required, optional rdma.QPAttrMask
}

type edge struct{ from, to rdma.QPState }

// Shorthands for the tables below.
const (
	aCur     = rdma.QPAttrCurState
	aNotify  = rdma.QPAttrEnSQDAsyncNotify
	aAccess  = rdma.QPAttrAccessFlags
	aPKey    = rdma.QPAttrPKeyIndex
	aPort    = rdma.QPAttrPort
	aQKey    = rdma.QPAttrQKey
	aAV      = rdma.QPAttrAV
	aMTU     = rdma.QPAttrPathMTU
	aTimeout = rdma.QPAttrTimeout
	aRetry   = rdma.QPAttrRetryCnt
	aRNR     = rdma.QPAttrRNRRetry
	aRQPSN   = rdma.QPAttrRQPSN
	aRdAtom  = rdma.QPAttrMaxQPRdAtomic
	aAlt     = rdma.QPAttrAltPath
	aMinRNR  = rdma.QPAttrMinRNRTimer
	aSQPSN   = rdma.QPAttrSQPSN
	aDestRd  = rdma.QPAttrMaxDestRdAtomic
	aMig     = rdma.QPAttrPathMigState
	aDest    = rdma.QPAttrDestQPN
	rcUpdate = aCur | aAccess | aAlt | aMig | aMinRNR
	ucUpdate = aCur | aAccess | aAlt | aMig
)

const (
	sReset = rdma.QPStateReset
	sInit  = rdma.QPStateInit
	sRTR   = rdma.QPStateRTR
	sRTS   = rdma.QPStateRTS
	sSQD   = rdma.QPStateSQD
	sSQE   = rdma.QPStateSQE
	sError = rdma.QPStateError
)

// transitions holds the legal edges by type. Every state also goes to RESET and ERR with the
// state alone.
var transitions = map[rdma.QPType]map[edge]rule{
	rdma.QPTypeRC: {
		{sReset, sInit}: {required: aPKey | aPort | aAccess},
		{sInit, sInit}:  {optional: aPKey | aPort | aAccess},
		{sInit, sRTR}: {
			required: aAV | aMTU | aDest | aRQPSN | aDestRd | aMinRNR,
			optional: aAlt | aAccess | aPKey,
		},
		{sRTR, sRTS}: {
			required: aTimeout | aRetry | aRNR | aSQPSN | aRdAtom, optional: rcUpdate,
		},
		{sRTS, sRTS}: {optional: rcUpdate},
		{sRTS, sSQD}: {optional: aNotify},
		{sSQD, sRTS}: {optional: rcUpdate},
		{sSQD, sSQD}: {
			optional: aPKey | aPort | aAV | aTimeout | aRetry | aRNR | aRdAtom | aDestRd | rcUpdate,
		},
	},
	// The halves of an XRC connection. What belongs to the other half means nothing, but programs
	// that treat both like RC bring it along.
	rdma.QPTypeXRCSend: {
		{sReset, sInit}: {required: aPKey | aPort | aAccess},
		{sInit, sInit}:  {optional: aPKey | aPort | aAccess},
		{sInit, sRTR}: {
			required: aAV | aMTU | aDest | aRQPSN,
			optional: aAlt | aAccess | aPKey | aDestRd | aMinRNR,
		},
		{sRTR, sRTS}: {
			required: aTimeout | aRetry | aRNR | aSQPSN | aRdAtom, optional: rcUpdate,
		},
		{sRTS, sRTS}: {optional: rcUpdate},
		{sRTS, sSQD}: {optional: aNotify},
		{sSQD, sRTS}: {optional: rcUpdate},
		{sSQD, sSQD}: {
			optional: aPKey | aPort | aAV | aTimeout | aRetry | aRNR | aRdAtom | aDestRd | rcUpdate,
		},
	},
	rdma.QPTypeXRCRecv: {
		{sReset, sInit}: {required: aPKey | aPort | aAccess},
		{sInit, sInit}:  {optional: aPKey | aPort | aAccess},
		{sInit, sRTR}: {
			required: aAV | aMTU | aDest | aRQPSN | aDestRd | aMinRNR,
			optional: aAlt | aAccess | aPKey,
		},
		{sRTR, sRTS}: {
			required: aTimeout | aSQPSN, optional: aRetry | aRNR | aRdAtom | rcUpdate,
		},
		{sRTS, sRTS}: {optional: rcUpdate},
		{sRTS, sSQD}: {optional: aNotify},
		{sSQD, sRTS}: {optional: rcUpdate},
		{sSQD, sSQD}: {
			optional: aPKey | aPort | aAV | aTimeout | aRetry | aRNR | aRdAtom | aDestRd | rcUpdate,
		},
	},
	rdma.QPTypeUC: {
		{sReset, sInit}: {required: aPKey | aPort | aAccess},
		{sInit, sInit}:  {optional: aPKey | aPort | aAccess},
		{sInit, sRTR}:   {required: aAV | aMTU | aDest | aRQPSN, optional: aAlt | aAccess | aPKey},
		{sRTR, sRTS}:    {required: aSQPSN, optional: ucUpdate},
		{sRTS, sRTS}:    {optional: ucUpdate},
		{sRTS, sSQD}:    {optional: aNotify},
		{sSQD, sRTS}:    {optional: ucUpdate},
		{sSQD, sSQD}:    {optional: aPKey | aAV | ucUpdate},
		{sSQE, sRTS}:    {optional: aCur | aAccess},
	},
	rdma.QPTypeUD: {
		{sReset, sInit}: {required: aPKey | aPort | aQKey},
		{sInit, sInit}:  {optional: aPKey | aPort | aQKey},
		{sInit, sRTR}:   {optional: aPKey | aQKey},
		{sRTR, sRTS}:    {required: aSQPSN, optional: aCur | aQKey},
		{sRTS, sRTS}:    {optional: aCur | aQKey},
		{sRTS, sSQD}:    {optional: aNotify},
		{sSQD, sRTS}:    {optional: aCur | aQKey},
		{sSQD, sSQD}:    {optional: aPKey | aQKey},
		{sSQE, sRTS}:    {optional: aCur | aQKey},
	},
}

// checkTransition says whether mask may take a QP of type t from one state to the other, and
// names the attributes that are missing or misplaced.
func checkTransition(t rdma.QPType, e edge, mask rdma.QPAttrMask) *rdma.Refusal {
	if unknown := mask &^ rdma.QPAttrAll; unknown != 0 {
		return refusef(syscall.EINVAL, "modify_qp: unknown attribute bits %#x", uint32(unknown))
	}
	mask &^= rdma.QPAttrState
	r, legal := transitions[t][e]
	if e.to == sReset || e.to == sError {
		r, legal = rule{}, true
	}
	if !legal {
		return refusef(syscall.EINVAL, "modify_qp: %v QP cannot go from %v to %v", t, e.from, e.to)
	}
	if missing := r.required &^ mask; missing != 0 {
		return refusef(syscall.EINVAL, "modify_qp: %v→%v of a %v QP needs %v", e.from, e.to, t, missing)
	}
	if extra := mask &^ (r.required | r.optional); extra != 0 {
		return refusef(syscall.EINVAL, "modify_qp: %v→%v of a %v QP cannot carry %v",
			e.from, e.to, t, extra)
	}
	return nil
}
