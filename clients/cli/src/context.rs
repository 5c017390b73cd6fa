//! The context of every command, and how it reaches the services.

use crate::{
    connect::{Client, Gate, Requirement, Session, Target},
    failure::Failure,
    screen::Screen,
};

/// The context of every verb.
pub(crate) struct Context {
    /// Where to write.
    pub(crate) screen: Screen,
    /// Where to look for the services.
    pub(crate) target: Target,
    /// The namespace of the executions.
    pub(crate) namespace: String,
}

impl Context {
    /// Makes short requests to the services, and closes the session.
    pub(crate) async fn ask<T>(
        &self,
        needs: Requirement,
        question: impl AsyncFnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_session(needs, async |session| question(&mut session.client).await).await
    }

    /// Uses the services through a session, and closes it.
    pub(crate) async fn with_session<T>(
        &self,
        needs: Requirement,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut session = Session::open(&self.target, needs).await?;
        let done = work(&mut session).await;
        session.close().await;
        done
    }

    /// The same with a client of the approval gate.
    pub(crate) async fn ask_gate<T>(
        &self,
        question: impl AsyncFnOnce(&mut Gate, &mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut session = Session::open(&self.target, Requirement::Records).await?;
        let answer = match session.to_gate().client().await {
            Ok(mut gate) => question(&mut gate, &mut session.client).await,
            Err(failure) => Err(failure),
        };
        session.close().await;
        answer
    }
}
