//! Whether the active sandbox layers suffice for a command.

use belay_policy::Tier;
use belay_proto::{
    runner_v1::{EnforcementReport, enforcement_report},
    v1::ErrorClass,
};
use belay_reasons as reasons;

use crate::ToolFailure;

fn tier(tier: enforcement_report::Tier) -> Option<Tier> {
    match tier {
        enforcement_report::Tier::Unspecified | enforcement_report::Tier::None => None,
        enforcement_report::Tier::C => Some(Tier::C),
        enforcement_report::Tier::B => Some(Tier::B),
        enforcement_report::Tier::A => Some(Tier::A),
    }
}

/// Rejects commands if the sandbox is weaker than the policy or the runner requires, or if an attack succeeded. `refusal` says why there is no
/// launcher, if there is none.
///
/// # Errors
/// SANDBOX_UNAVAILABLE, with the missing layers.
pub(crate) fn check(report: &EnforcementReport, refusal: Option<&str>, policy: Tier) -> Result<(), ToolFailure> {
    let refused = |message| Err(ToolFailure::new(ErrorClass::SandboxViolation, reasons::SANDBOX_UNAVAILABLE, message));
    if !report.breaches.is_empty() {
        let attacks = report.breaches.join(", ");
        return refused(format!(
            "The sandbox is not secure on this machine: these attacks succeeded at startup: {attacks}. No command runs."
        ));
    }
    let Some(needed) = too_weak(tier(report.tier()), policy, tier(report.min_tier())) else {
        return Ok(());
    };
    let missing: Vec<String> = report
        .layers
        .iter()
        .filter(|layer| !layer.active)
        .map(|layer| match layer.fix.as_str() {
            "" => format!("{} ({})", layer.name, layer.why),
            fix => format!("{} ({}; {fix})", layer.name, layer.why),
        })
        .collect();
    if missing.is_empty()
        && let Some(why) = refusal
    {
        // The layers were not probed, so the machine is not what is wrong.
        return refused(format!("Commands cannot run without a sandbox: {why}."));
    }
    let missing = if missing.is_empty() { "the sandbox was not probed".to_owned() } else { missing.join(", ") };
    refused(format!("Commands require sandbox tier {needed:?}, which this machine does not reach. Missing: {missing}."))
}

/// The tier that a command needs (the stricter of policy and runner), if the sandbox does not reach it.
fn too_weak(there: Option<Tier>, policy: Tier, own: Option<Tier>) -> Option<Tier> {
    let needed = own.map_or(policy, |own| own.max(policy));
    (there < Some(needed)).then_some(needed)
}

#[cfg(test)]
mod tests {
    use belay_proto::runner_v1::EnforcementLayer;

    use super::*;

    /// B-10.
    #[test]
    fn a_refusal_names_what_is_missing() {
        let layer = |name: &str, active| EnforcementLayer {
            name: name.into(),
            active,
            why: "EPERM".into(),
            fix: "allow it".into(),
        };
        let report = EnforcementReport {
            layers: vec![layer("landlock", true), layer("user namespace", false)],
            tier: enforcement_report::Tier::C.into(),
            ..EnforcementReport::default()
        };
        assert_eq!(check(&report, None, Tier::C), Ok(()));
        let refused = check(&report, None, Tier::A).unwrap_err();
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::SandboxViolation, "SANDBOX_UNAVAILABLE"));
        assert!(refused.message.contains("user namespace (EPERM; allow it)") && !refused.message.contains("landlock"));
        let leaky = EnforcementReport { breaches: vec!["host_pid_signal".into()], ..report };
        assert!(check(&leaky, None, Tier::C).unwrap_err().message.contains("host_pid_signal"));
        let untested = EnforcementReport::default();
        assert!(check(&untested, None, Tier::C).unwrap_err().message.contains("not probed"));
        let refused = check(&untested, Some("commands.read_only: `/etc` is never shown"), Tier::C).unwrap_err();
        assert!(refused.message.contains("commands.read_only") && !refused.message.contains("machine"), "{refused:?}");
    }

    /// B-10.
    #[test]
    fn a_sandbox_below_the_strictest_required_tier_is_too_weak() {
        use Tier::*;
        for (there, policy, own, expected) in [
            (Some(A), A, None, None),
            (Some(B), A, None, Some(A)),
            (Some(B), C, None, None),
            (Some(B), C, Some(A), Some(A)),
            (Some(C), C, Some(C), None),
            (None, C, None, Some(C)),
            (None, C, Some(A), Some(A)),
        ] {
            assert_eq!(too_weak(there, policy, own), expected, "{there:?} {policy:?} {own:?}");
        }
    }
}
