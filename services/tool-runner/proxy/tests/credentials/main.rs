//! B-33: values go to the hosts of their credentials only, placeholders nowhere else, and no value comes back.

mod table;
mod tools;
mod world;
