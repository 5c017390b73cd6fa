//! A grant is good for one call and what a person saw of it, and for nothing else.

use belay_grant::{Grant, GrantExpectation, InvalidSeal, Keys, Scope, SignedBytes, SigningKey, VerifyingKey};
use proptest::prelude::*;

use crate::support::{CALL, GRANT, NOW, POLICY, digest, expected, gate, grant, signed, signed_by, trusted};

fn verify(signed: &SignedBytes) -> Result<Grant, InvalidSeal> {
    Grant::verify(signed, &trusted(), expected(&digest()))
}

fn text(grant: &Grant) -> String {
    String::from_utf8(grant.sign(&gate()).body).unwrap()
}

#[test]
fn what_the_gate_signed_is_believed() {
    assert_eq!(verify(&grant().sign(&gate())), Ok(grant()));
}

/// Stored grants are read by every later version: the bytes never change.
#[test]
fn the_signed_bytes_stay_as_they_are() {
    let plain = Grant { approver: "ann".into(), subject_digest: "sha256:00".into(), ..grant() };
    let signed = plain.sign(&gate());
    let body = concat!(
        r#"{"v":1,"approval":"namespaces/default/approvals/a","subject_digest":"sha256:00","#,
        r#""call":"namespaces/default/executions/e/steps/s/calls/1.1","audience":"tool-runner","approver":"ann","#,
        r#""policy_revision":3,"not_before":1799999990,"expires":1800003600,"scope":"once","uses":1,"nonce":"6e6f6e6365"}"#,
    );
    assert_eq!(String::from_utf8(signed.body.clone()).unwrap(), body);
    assert_eq!(signed, crate::support::signed(GRANT, body), "the prefix and the key's id too");
}

// B-03, B-05: a grant says which call, which subject and which policy it is for, and is refused for every other.
#[test]
fn a_grant_for_something_else_is_refused() {
    let good = grant();
    let other = belay_grant::digest_of(b"what the person did not see");
    for (wrong, what) in [
        (Grant { v: 2, ..good.clone() }, "version"),
        (Grant { audience: "executor".into(), ..good.clone() }, "audience"),
        (Grant { audience: String::new(), ..good.clone() }, "audience"),
        (Grant { call: CALL.replace("1.1", "1.2"), ..good.clone() }, "call"),
        (Grant { call: CALL.replace("1.1", "1.10"), ..good.clone() }, "call"),
        (Grant { call: String::new(), ..good.clone() }, "call"),
        (Grant { subject_digest: other, ..good.clone() }, "subject"),
        (Grant { subject_digest: digest().to_uppercase(), ..good.clone() }, "subject"),
        (Grant { policy_revision: 2, ..good.clone() }, "policy revision"),
        (Grant { policy_revision: 4, ..good.clone() }, "policy revision"),
        (Grant { uses: 0, ..good.clone() }, "number of uses"),
        (Grant { uses: 2, ..good.clone() }, "number of uses"),
    ] {
        match verify(&wrong.sign(&gate())) {
            Err(InvalidSeal::Mismatch { what: said, .. }) => assert_eq!(said, what, "{wrong:?}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
    }
    for (wrong, what) in [
        (Grant { nonce: String::new(), ..good.clone() }, "nonce"),
        (Grant { approver: String::new(), ..good.clone() }, "approver"),
        (Grant { approval: String::new(), ..good }, "approval"),
    ] {
        assert_eq!(verify(&wrong.sign(&gate())), Err(InvalidSeal::Malformed(format!("it has no {what}"))));
    }
}

#[test]
fn a_grant_holds_from_its_beginning_to_its_end() {
    let at = |now| {
        let grant = Grant { not_before: 1_000, expires: 2_000, ..grant() };
        Grant::verify(&grant.sign(&gate()), &trusted(), GrantExpectation { now, ..expected(&digest()) })
    };
    for (now, good) in [
        (i64::MIN, false),
        (0, false),
        (939, false),
        (940, true), // the runner's clock is a minute behind
        (1_000, true),
        (1_999, true),
        (2_000, false),
        (i64::MAX, false),
    ] {
        assert_eq!(at(now).is_ok(), good, "{now}: {:?}", at(now));
    }
    assert_eq!(at(2_000), Err(InvalidSeal::Time { not_before: 1_000, expires: 2_000, now: 2_000 }));
}

#[test]
fn no_window_is_opened_by_times_at_the_ends_or_the_wrong_way_round() {
    let at = |not_before, expires, now| {
        let grant = Grant { not_before, expires, ..grant() };
        Grant::verify(&grant.sign(&gate()), &trusted(), GrantExpectation { now, ..expected(&digest()) }).is_ok()
    };
    assert!(at(i64::MIN, i64::MAX, NOW));
    assert!(at(0, i64::MAX, i64::MAX - 1));
    assert!(!at(i64::MIN, i64::MAX, i64::MAX));
    assert!(!at(i64::MAX, i64::MIN, NOW));
    assert!(!at(NOW + 50, NOW + 40, NOW), "within the allowance for clocks, and over before it begins");
    assert!(!at(NOW, NOW, NOW));
}

#[test]
fn another_key_is_not_the_gates() {
    let other = SigningKey::from_bytes(&[8; 32]);
    let forged = grant().sign(&other);
    assert_eq!(verify(&forged), Err(InvalidSeal::UnknownKey(forged.key_id.clone())));
    // The id of the gate's key does not make it the gate's signature.
    let confused = SignedBytes { key_id: grant().sign(&gate()).key_id, ..forged };
    assert_eq!(verify(&confused), Err(InvalidSeal::Signature));
    // Nor does a trusted key's signature under the id of another trusted key.
    let both = Keys::new([gate().verifying_key(), other.verifying_key()]);
    let swapped = SignedBytes { key_id: belay_grant::key_id(&other.verifying_key()), ..grant().sign(&gate()) };
    assert_eq!(Grant::verify(&swapped, &both, expected(&digest())), Err(InvalidSeal::Signature));
    assert!(Grant::verify(&grant().sign(&other), &both, expected(&digest())).is_ok(), "both are trusted");
    assert_eq!(
        Grant::verify(&grant().sign(&gate()), &Keys::default(), expected(&digest())),
        Err(InvalidSeal::UnknownKey(belay_grant::key_id(&gate().verifying_key())))
    );
}

#[test]
fn a_signature_for_one_purpose_is_none_for_another() {
    let good = grant().sign(&gate());
    for domain in [POLICY, "", "belay grant 1", "belay grant 2\n", "belay grant 1\n\n", "BELAY GRANT 1\n"] {
        assert_eq!(verify(&signed(domain, good.body.clone())), Err(InvalidSeal::Signature), "{domain:?}");
    }
    assert_eq!(good.verify_policy(&trusted()), Err(InvalidSeal::Signature));
    let policy = SignedBytes::policy(&gate(), good.body.clone());
    assert_eq!(policy.verify_policy(&trusted()), Ok(()));
    assert_eq!(verify(&policy), Err(InvalidSeal::Signature));
    // What belongs to the prefix cannot be moved into the body.
    let moved = [b"1\n", good.body.as_slice()].concat();
    assert_eq!(verify(&signed("belay grant ", moved)), Err(InvalidSeal::Signature));
}

/// The gate's own key would have to sign these; even then they are not taken, so that a grant has one spelling.
#[test]
fn another_spelling_is_refused() {
    let good = text(&grant());
    let at = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    for other in [
        format!(" {good}"),
        format!("{good}\n"),
        format!("{good}{good}"),
        format!("{good}\0"),
        format!("\u{feff}{good}"),
        at(r#"{"v":1,"#, r#"{ "v":1,"#),
        at(r#"{"v":1,"#, r#"{"v":1.0,"#),
        at(r#"{"v":1,"#, r#"{"v":1e0,"#),
        at(r#"{"v":1,"#, r#"{"v":01,"#),
        at(r#"{"v":1,"#, r#"{"v":"1","#),
        at(r#"{"v":1,"#, r#"{"v":-1,"#),
        at(r#"{"v":1,"#, r#"{"v":4294967297,"#),
        at(r#"{"v":1,"#, r#"{"v":1,"v":1,"#),
        at(r#"{"v":1,"#, "{"),
        at(r#"{"v":1,"#, r#"{"v":1,"admin":true,"#),
        at(r#""uses":1,"#, ""),
        at(r#""uses":1,"#, r#""uses":null,"#),
        at(r#""uses":1,"#, r#""uses":1,"uses":1,"#),
        at(r#""scope":"once","uses":1,"#, r#""uses":1,"scope":"once","#),
        at(r#""scope":"once""#, r#""scope":"Once""#),
        at(r#""scope":"once""#, r#""scope":"forever""#),
        at(r#""nonce":"6e"#, r#""nonce":"\u0036e"#),
        at("calls/1.1", r"calls\/1.1"),
        at("\u{2028}", r"\u2028"),
        at(r#""policy_revision":3"#, r#""policy_revision":3.0"#),
        at(r#""policy_revision":3"#, r#""policy_revision":99999999999999999999"#),
        format!("[{good}]"),
        String::new(),
        "null".into(),
        "{}".into(),
    ] {
        match verify(&signed(GRANT, other.clone())) {
            Err(InvalidSeal::Malformed(_)) => {}
            found => panic!("{other}: {found:?}"),
        }
    }
    assert!(verify(&signed(GRANT, good)).is_ok(), "as it was");
    assert!(matches!(verify(&signed(GRANT, vec![0xff; 64])), Err(InvalidSeal::Malformed(_))));
}

#[test]
fn what_is_huge_is_refused_in_few_words() {
    let long = Grant { approver: "x".repeat(16 * 1024), ..grant() };
    assert!(
        matches!(verify(&long.sign(&gate())), Err(InvalidSeal::Malformed(why)) if why.contains("the limit is 16384"))
    );
    let good = text(&grant());
    let field = good.replacen('{', &format!("{{\"{}\":1,", "\u{202e}\n".repeat(1_000)), 1);
    let deep = "[".repeat(16_000);
    for body in [field, deep] {
        let said = verify(&signed(GRANT, body)).unwrap_err().to_string();
        assert!(said.len() < 4_000 && !said.contains(['\n', '\u{202e}']), "{said}");
    }
    let named = SignedBytes { key_id: "k\n".repeat(1 << 20), ..grant().sign(&gate()) };
    let said = verify(&named).unwrap_err().to_string();
    assert!(said.len() < 1_000 && !said.contains('\n'), "{said}");
}

#[test]
fn a_signature_has_one_spelling_and_one_length() {
    let good = grant().sign(&gate());
    for signature in [
        Vec::new(),
        vec![0; 64],
        vec![0xff; 64],
        good.signature[..63].to_vec(),
        [good.signature.as_slice(), &[0]].concat(),
        plus_order(&good.signature),
    ] {
        assert_eq!(verify(&SignedBytes { signature, ..good.clone() }), Err(InvalidSeal::Signature));
    }
}

/// The same signature with the group's order added to its scalar: the equation still holds.
fn plus_order(signature: &[u8]) -> Vec<u8> {
    let order = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut out = signature.to_vec();
    let mut carry = 0;
    for (byte, more) in out[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + more + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    out
}

/// For a key of low order, one signature fits any message, in the usual way of verifying.
#[test]
fn a_weak_key_signs_nothing() {
    let mut identity = [0; 32];
    identity[0] = 1;
    let weak = VerifyingKey::from_bytes(&identity).unwrap();
    let body = grant().sign(&gate()).body;
    let signature = [identity, [0; 32]].concat();
    let forged = SignedBytes { body: body.clone(), signature: signature.clone(), key_id: belay_grant::key_id(&weak) };
    let loose = ed25519_dalek::Verifier::verify(
        &weak,
        &[GRANT.as_bytes(), &body].concat(),
        &ed25519_dalek::Signature::from_slice(&signature).unwrap(),
    );
    assert!(loose.is_ok(), "the forgery is a good one");
    assert_eq!(Grant::verify(&forged, &Keys::new([weak]), expected(&digest())), Err(InvalidSeal::Signature));
    assert!(matches!(Keys::from_bytes(&identity), Err(InvalidSeal::Malformed(_))), "and it cannot be pinned");
}

prop_compose! {
    fn grants()(
        names in prop::array::uniform5("\\PC{1,40}"),
        revision in any::<i64>(),
        not_before in any::<i64>(),
        length in 1..i64::MAX,
    ) -> Grant {
        let [approval, call, approver, subject_digest, nonce] = names;
        Grant {
            v: 1, approval, subject_digest, call, audience: Grant::AUDIENCE.into(), approver, policy_revision: revision,
            not_before, expires: not_before.saturating_add(length), scope: Scope::Once, uses: 1, nonce,
        }
    }
}

proptest! {
    #[test]
    fn what_is_signed_is_what_is_read(grant in grants(), key in any::<[u8; 32]>()) {
        let key = SigningKey::from_bytes(&key);
        let signed = grant.sign(&key);
        prop_assume!(grant.not_before < grant.expires);
        let keys = Keys::from_bytes(key.verifying_key().as_bytes()).unwrap();
        let expected = GrantExpectation {
            call: &grant.call,
            subject_digest: &grant.subject_digest,
            policy_revision: grant.policy_revision,
            now: grant.not_before,
        };
        prop_assert_eq!(Grant::verify(&signed, &keys, expected), Ok(grant.clone()));
        prop_assert_eq!(&signed, &signed_by(&key, GRANT, signed.body.clone()));
    }

    // B-05
    #[test]
    fn any_flipped_bit_is_noticed(place in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let good = grant().sign(&gate());
        let mut bytes = [good.body.as_slice(), &good.signature].concat();
        let at = place.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let signature = bytes.split_off(good.body.len());
        prop_assert_eq!(verify(&SignedBytes { body: bytes, signature, ..good }), Err(InvalidSeal::Signature));
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..200), signature in prop::collection::vec(any::<u8>(), 0..80)) {
        let forged = SignedBytes { signature, ..signed(GRANT, body.clone()) };
        prop_assert!(verify(&forged).is_err());
        prop_assert!(verify(&signed(GRANT, body)).is_err());
    }
}
