//! Quorum layouts: Ursa Minor's protocol family (Abd-El-Malek and others, FAST 2005, section 3.2). The gateway itself keeps the data
//! consistent, with nobody to lead: it asks the drives of a column, which keep versions.

pub(crate) mod gateway;
pub(crate) mod heal;
pub(crate) mod joins;
pub(crate) mod node;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
pub(crate) mod way;
