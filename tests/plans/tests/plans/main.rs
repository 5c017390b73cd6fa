//! Plans as a whole, from the text on: what is accepted, what is refused and in which words, and what no text can do.

mod corpus;
mod fuzz;
mod schema;
