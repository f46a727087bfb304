//! What was acknowledged is there, whatever happens to the server.

mod killed;
