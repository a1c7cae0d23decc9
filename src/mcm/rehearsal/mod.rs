//! Plays the controllers against an API server in memory and a simulated cloud, on virtual time: to learn what a change will do before
//! it is made, and to test the controllers.

pub(crate) mod cloud;
pub(crate) mod play;
pub(crate) mod record;
