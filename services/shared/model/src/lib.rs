//! What models are asked, and how their answers are read: requests and streams of three APIs as values, without a connection.
//!
//! A [`Model`] is what its operator has configured. [`request`] makes of a [`Prompt`] the bytes that are sent; the same prompt gives the same bytes, so
//! that servers find its beginning in their caches. A [`Reader`] takes the bytes of the answer in whatever pieces they arrive, and gives an [`Answer`]
//! once the server has said that it is whole: one that breaks off is never an answer. Servers differ in details that their documentation does not have;
//! where one made a rule necessary, the rule names it.

mod answer;
mod api;
mod base_url;
mod call;
mod chat;
mod check;
mod constrained;
mod failure;
mod messages;
mod model;
mod prompt;
mod reading;
mod responses;
mod retry_after;
mod served;
mod sse;
mod usage;

pub use answer::{Answer, Delta, End};
pub use api::{HttpRequest, MAX_ANSWER, Reader, list_request, refusal, request};
pub use base_url::BaseUrl;
pub use call::{Arguments, Call};
pub use check::{Check, Found, ModelCheck, Question, Verdict};
pub use failure::{Failure, Limit, Refusal, shortened};
pub use model::{Api, Model, Price, TimeLimits, ToolCalls};
pub use prompt::{CallResult, Message, OfferedTool, Prompt, Schema};
pub use retry_after::{MAX_RETRY_AFTER, retry_after};
pub use served::{ServedModel, served};
pub use usage::{Estimator, Usage};
