//! Questions that a call asks while its tool runs: what is open, and who is told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use belay_proto::{
    runner_v1::{ToolCallQuestion, answer_tool_call_request::Reply},
    v1::Form,
};
use thiserror::Error;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep},
};

/// The most open questions of a call.
pub(crate) const MAX_OPEN: usize = 10;

/// The most questions of a call: what became of them is kept by the executor until the call ends.
pub(crate) const MAX_ASKED: usize = 1_000;

/// Why a question is not asked.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QuestionRefusal {
    /// Too many are open.
    #[error("{MAX_OPEN} questions of this call are open already: wait for an answer")]
    TooManyOpen,
    /// The call has asked too many.
    #[error("this call has asked {MAX_ASKED} questions already")]
    TooMany,
    /// The tool has ended.
    #[error("the call has ended")]
    Over,
}

/// The questions of one call. Clones are the same questions.
#[derive(Clone, Debug)]
pub struct Questions(Arc<SharedQuestions>);

#[derive(Debug)]
struct SharedQuestions {
    /// Distinguishes the questions of this run of the call from those of one before it.
    run: String,
    state: Mutex<State>,
    /// The open questions, for those who follow the call.
    open: watch::Sender<Arc<[ToolCallQuestion]>>,
}

#[derive(Debug, Default)]
struct State {
    asked: usize,
    /// By their numbers, from 1.
    open: BTreeMap<usize, OpenQuestion>,
    is_over: bool,
    /// Since when one is open.
    open_since: Option<Instant>,
    /// How long one was open before.
    was_open: Duration,
}

#[derive(Debug)]
struct OpenQuestion {
    message: ToolCallQuestion,
    reply: oneshot::Sender<Reply>,
}

impl Questions {
    /// The questions of one run of a call. `run` distinguishes it from the runs before it.
    pub fn new(run: impl Into<String>) -> Self {
        let open = watch::Sender::new(Arc::from([]));
        Self(Arc::new(SharedQuestions { run: run.into(), state: Mutex::default(), open }))
    }

    /// Asks. The receiver gets the reply; it gets none when the tool ends before.
    ///
    /// # Errors
    /// [`QuestionRefusal`].
    pub fn ask(&self, form: Form, timeout: Option<Duration>) -> Result<oneshot::Receiver<Reply>, QuestionRefusal> {
        let timeout = timeout.map(belay_proto::duration);
        self.put(ToolCallQuestion { form: Some(form), timeout, ..ToolCallQuestion::default() })
    }

    /// Asks with a form whose answer may hold for the execution: by its member `for`.
    ///
    /// # Errors
    /// [`QuestionRefusal`].
    pub fn ask_for_execution(&self, form: Form) -> Result<oneshot::Receiver<Reply>, QuestionRefusal> {
        let form = Some(form);
        self.put(ToolCallQuestion { form, may_hold_for_execution: true, ..ToolCallQuestion::default() })
    }

    fn put(&self, question: ToolCallQuestion) -> Result<oneshot::Receiver<Reply>, QuestionRefusal> {
        let mut state = self.state();
        if state.is_over {
            return Err(QuestionRefusal::Over);
        }
        if state.open.len() >= MAX_OPEN {
            return Err(QuestionRefusal::TooManyOpen);
        }
        if state.asked >= MAX_ASKED {
            return Err(QuestionRefusal::TooMany);
        }
        state.asked += 1;
        let number = state.asked;
        let message = ToolCallQuestion { id: format!("{}-{number}", self.0.run), ..question };
        let (reply, replied) = oneshot::channel();
        state.open.insert(number, OpenQuestion { message, reply });
        state.open_since.get_or_insert_with(Instant::now);
        self.publish(&state);
        Ok(replied)
    }

    /// Passes a reply on. One to a question that is not open changes nothing: it was repeated, or the tool has ended.
    pub(crate) fn answer(&self, id: &str, reply: Reply) {
        let mut state = self.state();
        let number = state.open.iter().find(|(_, open)| open.message.id == id).map(|(number, _)| *number);
        let Some(open) = number.and_then(|number| state.open.remove(&number)) else { return };
        // An error means that the tool does not wait for it.
        drop(open.reply.send(reply));
        state.settle();
        self.publish(&state);
    }

    /// Withdraws the open questions whose receivers are gone: their replies are not waited for.
    pub(crate) fn withdraw_abandoned(&self) {
        let mut state = self.state();
        state.open.retain(|_, open| !open.reply.is_closed());
        state.settle();
        self.publish(&state);
    }

    /// Withdraws what is open: the tool has ended.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.open.clear();
        state.settle();
        self.publish(&state);
    }

    /// The open questions, from now on.
    pub fn subscribe(&self) -> watch::Receiver<Arc<[ToolCallQuestion]>> {
        self.0.open.subscribe()
    }

    /// How long a question was open: the call's time limit stood still.
    pub(crate) fn stood_still(&self) -> Duration {
        let state = self.state();
        state.was_open + state.open_since.map(|since| since.elapsed()).unwrap_or_default()
    }

    fn publish(&self, state: &State) {
        self.0.open.send_replace(state.open.values().map(|open| open.message.clone()).collect());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts the time once none is open any more.
    fn settle(&mut self) {
        if self.open.is_empty()
            && let Some(since) = self.open_since.take()
        {
            self.was_open += since.elapsed();
        }
    }
}

/// Returns when a time limit has passed, which stands still while a question is open.
pub(crate) async fn time_is_over(limit: Duration, questions: Option<&Questions>) {
    let Some(questions) = questions else { return sleep(limit).await };
    let (mut left, mut open) = (limit, questions.subscribe());
    loop {
        let is_open = !open.borrow_and_update().is_empty();
        let began = Instant::now();
        // The sender lives as long as the questions.
        tokio::select! {
            _ = open.changed() => {}
            () = sleep(left), if !is_open => return,
        }
        if !is_open {
            left = left.saturating_sub(began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Payload;

    use super::*;

    fn ask(questions: &Questions) -> oneshot::Receiver<Reply> {
        questions.ask(Form::default(), None).unwrap()
    }

    fn open(questions: &Questions) -> Vec<String> {
        questions.subscribe().borrow().iter().map(|question| question.id.clone()).collect()
    }

    #[tokio::test]
    async fn each_question_has_one_reply_and_its_own() {
        let questions = Questions::new("r");
        let (first, second) = (ask(&questions), ask(&questions));
        assert_eq!(open(&questions), ["r-1", "r-2"]);
        let reply = |text: &str| Reply::Answer(Payload::of_json(text));
        questions.answer("r-2", reply("2"));
        questions.answer("r-2", reply("again"));
        questions.answer("q-1", reply("of none"));
        assert_eq!((second.await, open(&questions)), (Ok(reply("2")), vec!["r-1".to_owned()]));
        questions.close();
        assert!(first.await.is_err() && open(&questions).is_empty());
        assert_eq!(questions.ask(Form::default(), None).unwrap_err(), QuestionRefusal::Over);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_a_receiver_is_withdrawn() {
        let questions = Questions::new("r");
        let (kept, dropped) = (ask(&questions), ask(&questions));
        drop(dropped);
        questions.withdraw_abandoned();
        assert_eq!(open(&questions), ["r-1"]);
        sleep(Duration::from_secs(5)).await;
        drop(kept);
        questions.withdraw_abandoned();
        sleep(Duration::from_secs(9)).await;
        assert_eq!((open(&questions).len(), questions.stood_still().as_secs()), (0, 5));
    }

    #[tokio::test]
    async fn questions_are_bounded() {
        let questions = Questions::new("r");
        let open: Vec<_> = (0..MAX_OPEN).map(|_| ask(&questions)).collect();
        assert_eq!(questions.ask(Form::default(), None).unwrap_err(), QuestionRefusal::TooManyOpen);
        drop(open);
        for number in 1..=MAX_ASKED {
            questions.answer(&format!("r-{number}"), Reply::TimedOut(Default::default()));
            let next = questions.ask(Form::default(), None);
            assert_eq!(next.is_ok(), number + MAX_OPEN <= MAX_ASKED, "{number}");
        }
        assert_eq!(questions.ask(Form::default(), None).unwrap_err(), QuestionRefusal::TooMany);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_stands_still_while_a_question_is_open() {
        let questions = Questions::new("r");
        let began = Instant::now();
        let limit = {
            let questions = questions.clone();
            tokio::spawn(async move { time_is_over(Duration::from_secs(10), Some(&questions)).await })
        };
        sleep(Duration::from_secs(4)).await;
        let (_first, _second) = (ask(&questions), ask(&questions));
        sleep(Duration::from_secs(3_600)).await;
        questions.answer("r-1", Reply::TimedOut(Default::default()));
        sleep(Duration::from_secs(3_600)).await;
        questions.answer("r-2", Reply::TimedOut(Default::default()));
        limit.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 7_210);
        assert_eq!(questions.stood_still().as_secs(), 7_200);
    }
}
