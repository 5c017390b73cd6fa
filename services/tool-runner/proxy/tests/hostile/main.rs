//! What hostile commands try over their network, against the proxy in this process; names and hosts are those of the tests.

mod bounds;
mod calls;
mod cases;
mod damage;
mod hello;
mod parsers;
mod requests;
mod table;
mod upstream_proxy;
mod world;
