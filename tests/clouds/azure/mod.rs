//! Azure: a fake of its Resource Manager, which Microsoft's own client drives in a test.

#[cfg(test)]
mod client;
#[allow(dead_code, reason = "unit tests of the driver use the rest")]
mod fake;
mod world;

// For the fake.
use super::kit;

pub use self::world::World;
