//! Trusted keys, and policies signed with them.

use belay_grant::{InvalidSeal, Keys, SignedBytes, SigningKey, digest_of, key_id};

use crate::support::{GRANT, POLICY, gate, signed, trusted};

#[test]
fn a_key_is_32_bytes() {
    let key = gate().verifying_key();
    let keys = Keys::from_bytes(key.as_bytes()).unwrap();
    assert_eq!(keys.iter().collect::<Vec<_>>(), [(key_id(&key).as_str(), &key)]);
    for bytes in [&[][..], &key.as_bytes()[..31], &[2; 33], &[0xff; 33]] {
        assert_eq!(Keys::from_bytes(bytes).unwrap_err(), InvalidSeal::Malformed("a public key has 32 bytes".into()));
    }
    // No point of the curve has this y.
    let mut none = [0; 32];
    none[0] = 2;
    assert!(matches!(Keys::from_bytes(&none), Err(InvalidSeal::Malformed(_))));
}

/// Every key of low order that has a canonical spelling.
#[test]
fn a_key_that_anybody_can_sign_for_is_refused() {
    let points = [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ];
    for point in points {
        let bytes: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&point[at..at + 2], 16).unwrap()).collect();
        assert_eq!(
            Keys::from_bytes(&bytes).unwrap_err(),
            InvalidSeal::Malformed("it is a weak public key".into()),
            "{point}"
        );
    }
}

#[test]
fn ids_and_digests_are_short_and_full_sha_256() {
    assert_eq!(digest_of(b""), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let key = gate().verifying_key();
    assert_eq!(format!("sha256:{}", key_id(&key)), digest_of(key.as_bytes())[..7 + 16]);
}

#[test]
fn a_policy_is_believed_as_it_was_signed() {
    let good = SignedBytes::policy(&gate(), b"the policy".to_vec());
    assert_eq!(good, signed(POLICY, b"the policy"));
    assert_eq!(good.verify_policy(&trusted()), Ok(()));
    for wrong in [
        SignedBytes { body: b"the Policy".to_vec(), ..good.clone() },
        SignedBytes { body: Vec::new(), ..good.clone() },
        signed(GRANT, good.body.clone()),
        signed("", good.body.clone()),
    ] {
        assert_eq!(wrong.verify_policy(&trusted()), Err(InvalidSeal::Signature), "{wrong:?}");
    }
    let other = SignedBytes::policy(&SigningKey::from_bytes(&[8; 32]), b"the policy".to_vec());
    assert_eq!(other.verify_policy(&trusted()), Err(InvalidSeal::UnknownKey(other.key_id)));
}
