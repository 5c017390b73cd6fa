//! A gate's key, a grant, a subject, and signatures that a forger would make.

use belay_grant::{
    Change, ChangeKind, Grant, GrantExpectation, Gravity, Keys, Kind, Risk, Scope, SignedBytes, SigningKey, Subject,
    key_id,
};
use ed25519_dalek::Signer as _;

pub(crate) const GRANT: &str = "belay grant 1\n";
pub(crate) const POLICY: &str = "belay policy 1\n";
pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const CALL: &str = "namespaces/default/executions/e/steps/s/calls/1.1";

pub(crate) fn gate() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

pub(crate) fn trusted() -> Keys {
    Keys::new([gate().verifying_key()])
}

pub(crate) fn digest() -> String {
    belay_grant::digest_of(b"subject")
}

pub(crate) fn grant() -> Grant {
    Grant {
        v: 1,
        approval: "namespaces/default/approvals/a".into(),
        subject_digest: digest(),
        call: CALL.into(),
        audience: Grant::AUDIENCE.into(),
        approver: "ann \"the\" boss\u{2028}".into(),
        policy_revision: 3,
        not_before: NOW - 10,
        expires: NOW + 3_600,
        scope: Scope::Once,
        uses: 1,
        nonce: "6e6f6e6365".into(),
    }
}

pub(crate) fn expected(digest: &str) -> GrantExpectation<'_> {
    GrantExpectation { call: CALL, subject_digest: digest, policy_revision: 3, now: NOW }
}

/// Bytes that the gate's key signed, whatever they say.
pub(crate) fn signed(domain: &str, body: impl Into<Vec<u8>>) -> SignedBytes {
    signed_by(&gate(), domain, body)
}

pub(crate) fn signed_by(key: &SigningKey, domain: &str, body: impl Into<Vec<u8>>) -> SignedBytes {
    let body = body.into();
    let signature = key.sign(&[domain.as_bytes(), &body].concat()).to_vec();
    SignedBytes { body, signature, key_id: key_id(&key.verifying_key()) }
}

pub(crate) fn subject() -> Subject {
    Subject {
        hidden: None,
        v: Subject::VERSION,
        kind: Kind::Effect,
        execution: "namespaces/default/executions/e".into(),
        step: "s".into(),
        tool: "run_terminal".into(),
        arguments: r#"{"command":["make"]}"#.into(),
        arguments_digest: belay_grant::digest_of(b"arguments"),
        command: vec!["make".into(), "-j 2".into()],
        working_directory: String::new(),
        workspace: "/home/ann/project".into(),
        enforced: vec!["landlock".into()],
        policy_revision: 3,
        rule: "terminal_commands".into(),
        reason: "what a command changed is shown before it is kept".into(),
        effect_digest: belay_grant::digest_of(b"manifest"),
        risk: Risk::Low,
        changes: vec![Change {
            path: "out/a.txt".into(),
            path_digest: String::new(),
            kind: ChangeKind::Created,
            gravity: Gravity::Remarkable,
            protection: String::new(),
            before: String::new(),
            after: belay_grant::digest_of(b"content"),
            what: "file 0644".into(),
            flags: vec!["executable".into()],
            folder: None,
        }],
        folders: Vec::new(),
        network: None,
        reveals: Vec::new(),
    }
}
