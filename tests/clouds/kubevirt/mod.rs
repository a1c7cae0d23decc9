//! KubeVirt: a fake of its API, which KubeVirt's own client drives in a test, and KubeVirt itself.

#[cfg(test)]
mod client;
#[allow(dead_code, reason = "unit tests of the driver use the rest")]
mod fake;
#[cfg(test)]
mod real;
mod world;

// For the fake.
use super::kit;

pub use self::world::World;
