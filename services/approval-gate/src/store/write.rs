//! The writer's operations.

use belay_proto::{
    gate_v1, runner_v1,
    stores::Stores,
    v1::{self, Approval, approval::State},
};
use belay_sqlite::SqliteError;
use prost::Message as _;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::{
    operations::{ApprovalContent, NewApproval, Op, Reply, RequestId},
    read,
    schema::{ANSWER, APPROVAL, BODY, GRANT, META, POLICY, damaged},
};
use crate::{
    decide::{self, Refusal},
    feed::Head,
};

/// Returns the store's id; a new store gets `new_id`.
pub(super) fn identify(connection: &Connection, new_id: impl FnOnce() -> String) -> Result<String, SqliteError> {
    let read = format!("SELECT store_id, {} FROM meta", META.intact());
    let stored = connection.query_row(&read, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)));
    match stored.optional()? {
        Some((_, false)) => Err(SqliteError::Row(META.damaged(1))),
        Some((id, true)) => Ok(id),
        None => {
            let id = new_id();
            connection.execute(&META.insert(), params![1, id, 0])?;
            Ok(id)
        }
    }
}

/// A durable batch.
pub(super) struct CommittedBatch {
    /// The reply to each operation.
    pub(super) answers: Vec<Reply>,
    /// The changed approvals, in the order of their revisions.
    pub(super) changes: Vec<Approval>,
    pub(super) head: Head,
    /// The commit's number.
    pub(super) number: i64,
}

/// Makes a batch durable.
pub(super) fn commit(
    connection: &mut Connection,
    stores: &Stores,
    batch: Vec<Op>,
) -> Result<CommittedBatch, SqliteError> {
    let transaction = connection.transaction()?;
    let head = read::head(&transaction)?;
    let mut writing = BatchWriter { transaction, revision: head.revision, changes: Vec::new() };
    let answers = batch.into_iter().map(|op| writing.perform(op)).collect::<Result<_, _>>()?;
    let head = read::head(&writing.transaction)?;
    let number = belay_sqlite::count_commit(&writing.transaction, stores)?;
    writing.transaction.commit()?;
    Ok(CommittedBatch { answers, changes: writing.changes, head, number })
}

struct BatchWriter<'a> {
    transaction: Transaction<'a>,
    revision: i64,
    changes: Vec<Approval>,
}

impl BatchWriter<'_> {
    fn perform(&mut self, op: Op) -> Result<Reply, SqliteError> {
        match self.try_perform(op) {
            // Nothing was changed: the row was read first.
            Err(SqliteError::Row(damaged)) => Ok(Reply::Damaged(damaged)),
            reply => reply,
        }
    }

    fn try_perform(&mut self, op: Op) -> Result<Reply, SqliteError> {
        match op {
            Op::Create(new) => self.create(*new),
            Op::Change { name, now, request, answer, fence, change } => {
                if let Some(request) = &request
                    && let Some((digest, decided)) = read::of_request(&self.transaction, &request.id)?
                {
                    let is_same = digest == request.digest;
                    return Ok(if is_same {
                        Reply::Approval(Some(decided))
                    } else {
                        Reply::Refused(Refusal::OtherRequest)
                    });
                }
                let Some((key, approval)) = self.current(&name, now)? else { return Ok(Reply::Approval(None)) };
                if let Some(token) = fence
                    && let Err(refusal) = self.admit(key, token)?
                {
                    return Ok(Reply::Refused(refusal));
                }
                match change(&approval) {
                    Err(refusal) => Ok(Reply::Refused(refusal)),
                    Ok(None) => Ok(Reply::Approval(Some(approval))),
                    Ok(Some(changed)) => {
                        let changed = self.save(key, changed)?;
                        if let Some(answer) = answer {
                            self.transaction.prepare_cached(&ANSWER.insert())?.execute(params![key, answer])?;
                        }
                        if let Some(RequestId { id, digest }) = request {
                            self.transaction
                                .prepare_cached("UPDATE approval SET request = ?2, request_digest = ?3 WHERE key = ?1")?
                                .execute(params![key, id, digest])?;
                            self.transaction.prepare_cached(&APPROVAL.stamp("key = ?1"))?.execute([key])?;
                        }
                        Ok(Reply::Approval(Some(changed)))
                    }
                }
            }
            Op::Lapse { now } => {
                for name in self.due(now)? {
                    read::intact(self.current(&name, now))?;
                }
                Ok(Reply::Done)
            }
            Op::Attach { name, fence, asks_again } => self.attach(&name, fence, asks_again),
            Op::Acknowledge(names) => self.acknowledge(names),
            Op::Grant { approval, grant, renews } => self.keep_grant(&approval, &grant, renews).map(Reply::Grant),
            Op::Policy(policy) => self.keep_policy(&policy).map(|()| Reply::Done),
            Op::Forget(executions) => self.forget(&executions).map(|()| Reply::Done),
        }
    }

    /// Checks the fencing token of a request about the approval with this key, and keeps it.
    fn admit(&self, key: i64, token: i64) -> Result<Result<(), Refusal>, SqliteError> {
        let admitted = decide::admit(read::fence(&self.transaction, key)?, token);
        if admitted.is_ok() {
            self.raise_fence(key, token)?;
        }
        Ok(admitted)
    }

    fn raise_fence(&self, key: i64, token: i64) -> Result<(), SqliteError> {
        let raise = "UPDATE approval SET fence = ?2 WHERE key = ?1 AND fence < ?2";
        if self.transaction.prepare_cached(raise)?.execute(params![key, token])? > 0 {
            self.transaction.prepare_cached(&APPROVAL.stamp("key = ?1"))?.execute([key])?;
        }
        Ok(())
    }

    fn create(&mut self, new: NewApproval) -> Result<Reply, SqliteError> {
        let NewApproval { mut basic, namespace, fence, subject, rendered } = new;
        if let Some((key, there)) = read::find(&self.transaction, &basic.name)? {
            return Ok(match self.admit(key, fence)? {
                Ok(()) => Reply::Approval(Some(there)),
                Err(refusal) => Reply::Refused(refusal),
            });
        }
        self.revision += 1;
        basic.revision = self.revision;
        let id = basic.name.rsplit('/').next().unwrap_or_default();
        let expires = basic.expire_time.as_ref().map(belay_proto::micros);
        self.transaction
            .prepare_cached(
                "INSERT INTO approval (name, namespace, id, execution, state, revision, expires, delivered, fence, basic)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9)",
            )?
            .execute(params![
                basic.name,
                namespace,
                id,
                basic.execution,
                basic.state,
                basic.revision,
                expires,
                fence,
                basic.encode_to_vec()
            ])?;
        let key = self.transaction.last_insert_rowid();
        self.transaction.prepare_cached(&APPROVAL.stamp("key = ?1"))?.execute([key])?;
        let rendered = match rendered {
            ApprovalContent::Preview(preview) => preview.encode_to_vec(),
            ApprovalContent::Form(form) => form.encode_to_vec(),
        };
        self.transaction.prepare_cached(&BODY.insert())?.execute(params![key, subject, rendered])?;
        self.changes.push(basic.clone());
        Ok(Reply::Approval(Some(basic)))
    }

    /// An approval at a time: expired, if it is due by then.
    fn current(&mut self, name: &str, now: i64) -> Result<Option<(i64, Approval)>, SqliteError> {
        let Some((key, approval)) = read::find(&self.transaction, name)? else { return Ok(None) };
        match decide::lapse(&approval, now) {
            None => Ok(Some((key, approval))),
            Some(lapsed) => self.save(key, lapsed).map(|approval| Some((key, approval))),
        }
    }

    fn save(&mut self, key: i64, mut approval: Approval) -> Result<Approval, SqliteError> {
        self.revision += 1;
        approval.revision = self.revision;
        self.transaction
            .prepare_cached("UPDATE approval SET state = ?2, revision = ?3, basic = ?4 WHERE key = ?1")?
            .execute(params![key, approval.state, approval.revision, approval.encode_to_vec()])?;
        self.transaction.prepare_cached(&APPROVAL.stamp("key = ?1"))?.execute([key])?;
        self.changes.push(approval.clone());
        Ok(approval)
    }

    fn due(&self, now: i64) -> Result<Vec<String>, SqliteError> {
        let due =
            "SELECT name FROM approval WHERE state = 1 AND expires IS NOT NULL AND expires <= ?1 ORDER BY expires, key";
        let mut statement = self.transaction.prepare_cached(due)?;
        Ok(statement.query_map([now], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// Skips approvals that do not exist or cannot be acknowledged in their state: executors acknowledge more than once.
    fn acknowledge(&mut self, names: gate_v1::AcknowledgeApprovalsRequest) -> Result<Reply, SqliteError> {
        // All are looked at before any is changed: an operation that is refused shares its transaction with others.
        let mut known = Vec::new();
        for name in names.delivered.iter().chain(&names.consumed).chain(&names.stale) {
            if let Some(Some((key, _))) = read::intact(read::find(&self.transaction, name))? {
                if let Err(refusal) = decide::admit(read::fence(&self.transaction, key)?, names.fencing_token) {
                    return Ok(Reply::Refused(refusal));
                }
                known.push(key);
            }
        }
        for key in known {
            self.raise_fence(key, names.fencing_token)?;
        }
        let used = names.consumed.iter().map(|name| (name, State::Consumed));
        let stale = names.stale.iter().map(|name| (name, State::Stale));
        for (name, state) in used.chain(stale) {
            if let Some(Some((key, approval))) = read::intact(read::find(&self.transaction, name))?
                && let Some(closed) = decide::close(&approval, state)
            {
                self.save(key, closed)?;
            }
        }
        for name in names.delivered.iter().chain(&names.consumed).chain(&names.stale) {
            // A pending approval has no decision that could have been delivered.
            let columns = APPROVAL.columns.iter().map(|column| if *column == "delivered" { "1" } else { column });
            let (sum, intact) = (APPROVAL.sum_of(columns), APPROVAL.intact());
            let delivered =
                format!("UPDATE approval SET delivered = 1, sum = {sum} WHERE name = ?1 AND state <> 1 AND {intact}");
            if self.transaction.prepare_cached(&delivered)?.execute([name])? > 0 {
                self.forget_answer(name)?;
            }
        }
        Ok(Reply::Done)
    }

    /// Deletes the answer to a form, if there is one.
    fn forget_answer(&self, name: &str) -> Result<(), SqliteError> {
        let answer = "DELETE FROM answer WHERE approval = (SELECT key FROM approval WHERE name = ?1)";
        self.transaction.prepare_cached(answer)?.execute([name])?;
        Ok(())
    }

    fn attach(&mut self, name: &str, fence: i64, asks_again: Option<i64>) -> Result<Reply, SqliteError> {
        let Some((key, approval)) = read::find(&self.transaction, name)? else { return Ok(Reply::Approval(None)) };
        if let Err(refusal) = self.admit(key, fence)? {
            return Ok(Reply::Refused(refusal));
        }
        let is_meant = asks_again == Some(approval.revision);
        let Some(pending) = decide::ask_again(&approval).filter(|_| is_meant) else {
            return Ok(Reply::Approval(Some(approval)));
        };
        self.forget_answer(name)?;
        // The request that answered it has to be possible again.
        let undo = "UPDATE approval SET delivered = 0, request = NULL, request_digest = NULL WHERE key = ?1";
        self.transaction.prepare_cached(undo)?.execute([key])?;
        self.save(key, pending).map(|approval| Reply::Approval(Some(approval)))
    }

    fn keep_grant(&self, name: &str, grant: &runner_v1::Grant, renews: bool) -> Result<runner_v1::Grant, SqliteError> {
        let (key, _) = read::find(&self.transaction, name)?.ok_or_else(|| damaged("the row", name))?;
        let conflict = match renews {
            true => {
                "DO UPDATE SET body = excluded.body, signature = excluded.signature, key_id = excluded.key_id, sum = excluded.sum"
            }
            false => "DO NOTHING",
        };
        self.transaction
            .prepare_cached(&format!("{} ON CONFLICT (approval) {conflict}", GRANT.insert()))?
            .execute(params![key, grant.body, grant.signature, grant.key_id])?;
        read::grant(&self.transaction, name)?.ok_or_else(|| damaged("the grant", name))
    }

    /// Deletes the approvals of these executions, damaged ones too, so that their revisions are not given again.
    fn forget(&mut self, executions: &[String]) -> Result<(), SqliteError> {
        const OF: &str = "SELECT key FROM approval WHERE execution = ?1";
        for execution in executions {
            let pending = "SELECT name FROM approval WHERE execution = ?1 AND state = 1";
            let pending: Vec<String> = self
                .transaction
                .prepare_cached(pending)?
                .query_map([execution], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            for name in pending {
                // For those who watch it now.
                if let Some(Some((key, approval))) = read::intact(read::find(&self.transaction, &name))?
                    && let Some(cancelled) = decide::cancel(&approval)
                {
                    self.save(key, cancelled)?;
                }
            }
            for delete in [
                format!("DELETE FROM body WHERE approval IN ({OF})"),
                format!("DELETE FROM answer WHERE approval IN ({OF})"),
                format!("DELETE FROM grant WHERE approval IN ({OF})"),
                "DELETE FROM approval WHERE execution = ?1".to_owned(),
            ] {
                self.transaction.prepare_cached(&delete)?.execute([execution])?;
            }
        }
        let sum = META.sum_of(["one", "store_id", "?1"]);
        let keep =
            format!("UPDATE meta SET last_revision = ?1, sum = {sum} WHERE last_revision < ?1 AND {}", META.intact());
        self.transaction.execute(&keep, [self.revision])?;
        Ok(())
    }

    fn keep_policy(&self, policy: &v1::SignedPolicy) -> Result<(), SqliteError> {
        self.transaction.prepare_cached(&POLICY.insert())?.execute(params![
            policy.revision,
            policy.body,
            policy.signature,
            policy.key_id
        ])?;
        Ok(())
    }
}
