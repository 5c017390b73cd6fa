//! Copies a large result from the runner, which has only a reference to it in its messages.
//!
//! The copy is complete and checked before the driver hears of the end of the call, so before that is stored and acknowledged: until then the runner
//! keeps the result, and whatever breaks, a copy can begin again.

use std::time::Duration;

use belay_execution::{ErrorClass, Failure, Json, Receipt, RecoveryClass};
use belay_proto::{payload::MAX_RESULT_BYTES, runner_v1};
use belay_reasons as reasons;
use belay_service_kit::status;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use tonic::{Code, Status};

use crate::runners::{call_reply::ResultReference, runner::Runner};

/// A stream without a piece for this long has lost its runner.
const SILENCE: Duration = Duration::from_secs(30);

/// How often the runner may lose a result or return another one, until the call fails. With the delays in between about ten seconds.
pub(crate) const MAX_FAILED_COPIES: u32 = 10;

/// A result as far as it was copied.
pub(crate) struct ResultCopy {
    reference: ResultReference,
    bytes: Vec<u8>,
    hash: Sha256,
}

/// Why a copy is not complete.
#[derive(Debug)]
pub(crate) enum NotCopied {
    /// The stream broke; the next one continues.
    Interrupted(Status),
    /// The runner does not have the result.
    Lost(Status),
    /// The runner returned what it has not promised. The copy has begun again.
    Wrong(String),
}

impl ResultCopy {
    pub(crate) fn new(reference: ResultReference) -> Self {
        Self { reference, bytes: Vec::new(), hash: Sha256::new() }
    }

    /// How many bytes are copied.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the result of this call on from where the last stream broke.
    pub(crate) async fn read(&mut self, runner: &Runner, call: &str) -> Result<Json, NotCopied> {
        let request = runner_v1::ReadBlobRequest {
            name: call.to_owned(),
            digest: self.reference.digest.clone(),
            offset: i64::try_from(self.bytes.len()).unwrap_or(i64::MAX),
        };
        let silent = |_| Status::unavailable("the runner was silent for too long");
        let opened = tokio::time::timeout(SILENCE, runner.read_blob(request)).await.map_err(silent);
        let mut pieces = opened.and_then(|opened| opened).map_err(not_copied)?;
        loop {
            let piece = tokio::time::timeout(SILENCE, pieces.message()).await.map_err(silent);
            match piece.and_then(|piece| piece).map_err(not_copied)? {
                Some(piece) => self.add(&piece)?,
                None => return self.finish(),
            }
        }
    }

    fn add(&mut self, piece: &runner_v1::ReadBlobResponse) -> Result<(), NotCopied> {
        let expected = self.bytes.len() as u64;
        if u64::try_from(piece.offset) != Ok(expected) {
            let why = format!("a piece begins at {} and not at {expected}", piece.offset);
            return Err(self.begin_again(why));
        }
        if expected + piece.data.len() as u64 > self.reference.size {
            let why = format!("it has more than the {} bytes of its reference", self.reference.size);
            return Err(self.begin_again(why));
        }
        self.hash.update(&piece.data);
        self.bytes.extend_from_slice(&piece.data);
        Ok(())
    }

    /// The whole result, when it is what the reference says.
    fn finish(&mut self) -> Result<Json, NotCopied> {
        let (length, size) = (self.bytes.len() as u64, self.reference.size);
        if length < size {
            return Err(self.begin_again(format!("it ends after {length} of {size} bytes")));
        }
        let digest = format!("sha256:{}", HEXLOWER.encode(&self.hash.clone().finalize()));
        if digest != self.reference.digest {
            return Err(self.begin_again(format!("its digest is {digest} and not {}", self.reference.digest)));
        }
        match String::from_utf8(std::mem::take(&mut self.bytes)) {
            Ok(text) => Ok(Json::from_text(text)),
            Err(_) => Err(self.begin_again("it is not text".into())),
        }
    }

    fn begin_again(&mut self, why: String) -> NotCopied {
        self.bytes.clear();
        self.hash = Sha256::new();
        NotCopied::Wrong(why)
    }
}

/// The consequence of an error of the stream.
fn not_copied(status: Status) -> NotCopied {
    match (status.code(), status::reason(&status).as_deref()) {
        (Code::NotFound, Some(reasons::CALL_NOT_FOUND | reasons::BLOB_NOT_FOUND)) => NotCopied::Lost(status),
        // A runner that does not serve what it refers to, or refuses what it should serve.
        (Code::Unimplemented | Code::OutOfRange | Code::InvalidArgument | Code::DataLoss, _) => {
            NotCopied::Wrong(format!("{:?}: {}", status.code(), status.message()))
        }
        _ => NotCopied::Interrupted(status),
    }
}

/// Whether a call that has completed may be sent again because the runner says that it does not have its result: it has changed nothing, or
/// changes nothing more.
pub(crate) fn may_run_again(recovery: RecoveryClass, receipt: &Receipt, said: &Status) -> bool {
    let is_same_ledger = || status::fact(said, "ledger_id").is_none_or(|ledger| ledger == receipt.ledger_id);
    match recovery {
        RecoveryClass::ReadOnly | RecoveryClass::Idempotent => true,
        // Of another ledger nothing can be expected but that the outcome is unknown, which is known here.
        RecoveryClass::Transactional => {
            receipt.effect_digest.is_empty() && receipt.grant_nonce.is_empty() && is_same_ledger()
        }
        RecoveryClass::Manual => false,
    }
}

/// The failure of a call that has completed, and whose result is lost. The outcome is known: what it changed is in place.
pub(crate) fn lost(size: u64, why: &str) -> Failure {
    let why = why.trim_end_matches('.');
    let message = format!(
        "The call completed and what it changed is in place, but its result of {size} bytes is lost: {why}. It was not run again."
    );
    Failure::new(ErrorClass::Internal, reasons::RESULT_LOST, message)
}

/// The failure of a call whose result is above the limit; `None` when it is not.
pub(crate) fn too_large(size: u64) -> Option<Failure> {
    let message = || format!("result: has {size} bytes and the limit is {MAX_RESULT_BYTES}");
    (size > MAX_RESULT_BYTES).then(|| Failure::new(ErrorClass::InvalidArguments, reasons::TOO_LARGE, message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(text: &str) -> ResultCopy {
        let digest = format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(text)));
        ResultCopy::new(ResultReference { digest, size: text.len() as u64 })
    }

    fn piece(offset: i64, data: &str) -> runner_v1::ReadBlobResponse {
        runner_v1::ReadBlobResponse { offset, data: data.into() }
    }

    /// B-09: what is copied is what the reference says, also in pieces that end within a character.
    #[test]
    fn a_copy_is_taken_only_as_a_whole() {
        let text = "\"größe\"";
        let mut copying = copy(text);
        for (at, byte) in text.bytes().enumerate() {
            let data = vec![byte];
            copying.add(&runner_v1::ReadBlobResponse { offset: at as i64, data }).unwrap();
        }
        assert_eq!(copying.finish().unwrap().as_str(), text);
    }

    #[test]
    fn what_is_not_as_promised_is_no_copy_and_the_next_begins_again() {
        let wrong = |end: Result<Json, NotCopied>| match end {
            Err(NotCopied::Wrong(why)) => why,
            other => panic!("{other:?}"),
        };
        let mut copying = copy("12345");
        copying.add(&piece(0, "123")).unwrap();
        assert_eq!(wrong(copying.finish()), "it ends after 3 of 5 bytes");
        let added = copying.add(&piece(3, "45")).map(|()| Json::from_text(""));
        assert_eq!(wrong(added), "a piece begins at 3 and not at 0");
        copying.add(&piece(0, "123")).unwrap();
        let added = copying.add(&piece(3, "456")).map(|()| Json::from_text(""));
        assert_eq!(wrong(added), "it has more than the 5 bytes of its reference");
        copying.add(&piece(0, "12346")).unwrap();
        assert!(wrong(copying.finish()).starts_with("its digest is sha256:"));
        copying.add(&piece(0, "12345")).unwrap();
        assert_eq!(copying.finish().unwrap().as_str(), "12345");
    }

    #[test]
    fn only_the_runner_s_own_words_say_that_a_result_is_lost() {
        let ours = |code, reason| not_copied(status::error(code, reason, "no").into());
        for reason in [reasons::CALL_NOT_FOUND, reasons::BLOB_NOT_FOUND] {
            assert!(matches!(ours(Code::NotFound, reason), NotCopied::Lost(_)), "{reason}");
        }
        for code in [Code::NotFound, Code::Unavailable, Code::Unknown, Code::Internal, Code::PermissionDenied] {
            assert!(matches!(not_copied(Status::new(code, "proxy")), NotCopied::Interrupted(_)), "{code:?}");
        }
        assert!(matches!(ours(Code::Unavailable, reasons::RUNNER_STOPPING), NotCopied::Interrupted(_)));
        assert!(matches!(not_copied(Status::unimplemented("")), NotCopied::Wrong(_)));
    }

    #[test]
    fn a_call_runs_again_only_where_that_changes_nothing_more() {
        let receipt = |effect: &str, nonce: &str| Receipt {
            ledger_id: "ledger".into(),
            effect_digest: effect.into(),
            grant_nonce: nonce.into(),
            ..Receipt::default()
        };
        use RecoveryClass::{Idempotent, Manual, ReadOnly, Transactional};
        for (recovery, effect, nonce, ledger, expected) in [
            (ReadOnly, "", "", "another", true),
            (Idempotent, "", "nonce", "another", true),
            (Transactional, "", "", "ledger", true),
            (Transactional, "", "", "another", false),
            (Transactional, "sha256:1", "", "ledger", false),
            (Transactional, "", "nonce", "ledger", false),
            (Manual, "", "", "ledger", false),
        ] {
            let said = status::error(Code::NotFound, reasons::CALL_NOT_FOUND, "no").with("ledger_id", ledger);
            let may = may_run_again(recovery, &receipt(effect, nonce), &said.into());
            assert_eq!(may, expected, "{recovery:?} {effect} {nonce} {ledger}");
        }
    }

    #[test]
    fn a_result_above_the_limit_is_refused() {
        assert!(too_large(MAX_RESULT_BYTES).is_none());
        assert_eq!(too_large(MAX_RESULT_BYTES + 1).unwrap().reason, "TOO_LARGE");
    }
}
