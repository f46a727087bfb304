//! What was acknowledged is there, whatever happens to the server, and whenever.

mod commands;
mod killed;
