//! Which native objects the provider may touch, and in which cluster the Nodes of their Machines are.

mod observe;
#[cfg(test)]
mod tests;

pub(super) use observe::Surroundings;
