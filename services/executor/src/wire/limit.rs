//! Messages for limits over executions.

use belay_execution::LimitState;
use belay_plan::{LimitBound, LimitClaim, LimitDraft, StartRate, Violation, WhenFull};
use belay_proto::v1;

use super::NotUnderstood;

/// A limit of a plan as a message.
pub(super) fn limit_message(limit: LimitDraft) -> v1::ExecutionLimit {
    let LimitDraft { key, at_once, rate, when_full } = limit;
    v1::ExecutionLimit {
        key,
        at_once: at_once.map_or(0, count),
        rate: rate.map(rate_message),
        when_full: when_full_to(when_full).into(),
    }
}

/// A limit of an execution as a message.
pub(super) fn claim_message(claim: &LimitClaim) -> v1::ExecutionLimit {
    let LimitClaim { key, bound, when_full } = claim;
    let (at_once, rate) = match *bound {
        LimitBound::AtOnce(at_once) => (Some(at_once), None),
        LimitBound::Rate(rate) => (None, Some(rate)),
    };
    limit_message(LimitDraft { key: key.clone(), at_once, rate, when_full: *when_full })
}

/// Whether an execution waits for its limits or holds them, as a message.
pub(super) fn limit_state(state: LimitState) -> v1::LimitState {
    match state {
        LimitState::None => v1::LimitState::Unspecified,
        LimitState::Waiting(_) => v1::LimitState::Waiting,
        LimitState::Held => v1::LimitState::Held,
    }
}

/// Reads the limits of a plan.
pub(super) fn limits_from(limits: Vec<v1::ExecutionLimit>, violations: &mut Vec<Violation>) -> Vec<LimitDraft> {
    let mut read = Vec::with_capacity(limits.len());
    for (place, limit) in limits.into_iter().enumerate() {
        let mut refuse = |field: &str, message: &str| {
            let field = format!("limits[{place}].{field}");
            violations.push(Violation { field, message: message.to_owned(), line: 0, column: 0 });
        };
        let v1::ExecutionLimit { key, at_once, rate, when_full } = limit;
        let at_once = u32::try_from(at_once).unwrap_or_else(|_| {
            refuse("at_once", "must not be negative");
            1
        });
        let when_full = when_full_from(when_full).unwrap_or_else(|| {
            refuse("when_full", "is no value that this version knows");
            WhenFull::Wait
        });
        let rate = rate.map(|rate| {
            rate_from(rate).unwrap_or_else(|| {
                refuse("rate", "must have `starts`, which is not negative, and `window`, a length of time");
                StartRate { starts: 1, window: std::time::Duration::from_secs(1) }
            })
        });
        read.push(LimitDraft { key, at_once: Some(at_once).filter(|at_once| *at_once > 0), rate, when_full });
    }
    read
}

/// Reads a limit of an execution.
pub(super) fn claim_from(limit: v1::ExecutionLimit) -> Result<LimitClaim, NotUnderstood> {
    let v1::ExecutionLimit { key, at_once, rate, when_full } = limit;
    let bound = match rate {
        Some(rate) => LimitBound::Rate(rate_from(rate).ok_or(NotUnderstood::Missing("the rate of a limit"))?),
        None => LimitBound::AtOnce(u32::try_from(at_once).unwrap_or(0).max(1)),
    };
    let what = "the fate of an execution that finds a limit full";
    let known = when_full_from(when_full);
    Ok(LimitClaim { key, bound, when_full: known.ok_or(NotUnderstood::Value { what, number: when_full })? })
}

fn rate_message(StartRate { starts, window }: StartRate) -> v1::StartRate {
    v1::StartRate { starts: count(starts), window: Some(belay_proto::duration(window)) }
}

fn rate_from(v1::StartRate { starts, window }: v1::StartRate) -> Option<StartRate> {
    let window = belay_proto::to_duration(&window?)?;
    Some(StartRate { starts: u32::try_from(starts).ok()?, window })
}

fn when_full_to(when_full: WhenFull) -> v1::WhenFull {
    match when_full {
        WhenFull::Wait => v1::WhenFull::Wait,
        WhenFull::CancelOlder => v1::WhenFull::CancelOlder,
        WhenFull::Refuse => v1::WhenFull::Refuse,
    }
}

fn when_full_from(when_full: i32) -> Option<WhenFull> {
    match v1::WhenFull::try_from(when_full).ok()? {
        v1::WhenFull::Unspecified | v1::WhenFull::Wait => Some(WhenFull::Wait),
        v1::WhenFull::CancelOlder => Some(WhenFull::CancelOlder),
        v1::WhenFull::Refuse => Some(WhenFull::Refuse),
    }
}

fn count(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
