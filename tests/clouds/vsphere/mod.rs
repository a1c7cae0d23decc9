//! vSphere: govmomi's simulator of vCenter.

#[allow(dead_code, reason = "unit tests of the driver use the rest")]
mod vcenter;
mod world;

// For the simulator.
use super::kit;

pub use self::world::World;
