//! How a model works towards a goal: what each turn asks of it, what its answer wants, and when it stops getting anywhere. Pure: no clock, no ids, no store.
//!
//! A turn is recorded in two parts, each once: what it adds to the conversation ([`Asked`]), and the answer ([`Answered`]). The prompt of a turn is made of the
//! parts of the turns so far and of nothing else, so that the same record gives the same bytes, and each prompt begins with the one before it, which servers have
//! in their caches. The one exception is a turn that archives older results: from there on the prompt has a fixed stub in their place.

mod answered;
mod asked;
mod carried;
mod judge;
mod offer;
mod outcome;
mod prompt;
mod repetition;
mod span;
mod window;

pub use answered::{
    Answered, Calls, Counted, Wanted, WantedCall, call_id, call_place, conflict_id, conflict_turn, file_id, file_place,
};
pub use asked::{Asked, Beginning, ResultText};
pub use carried::{CarriedConversation, CarriedTurn};
pub use judge::{Judgement, judge_prompt, judge_size, judgement};
pub use offer::{INSTRUCTIONS, Offer, READ_RESULT, beginning, offered_name};
pub use outcome::{
    NOT_COMMITTED, Outcome, RESULT_TOKENS, ShownFile, conflict_text, file_text, result_part, shown_files,
};
pub use prompt::{Turn, prompt};
pub use repetition::{LIMIT as REPETITION_LIMIT, repetitions};
pub use span::{span_input, span_output};
pub use window::{ARCHIVE_AT, KEPT, ModelWindow, archivable, archived, most_tokens, shortened};
