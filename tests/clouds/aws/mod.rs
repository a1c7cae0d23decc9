//! AWS: moto and MiniStack, behind a proxy that adds what they lack.

#[cfg(test)]
mod calls;
mod ec2;
#[allow(dead_code, reason = "the demo needs no faults")]
mod proxy;
mod server;
#[cfg(test)]
mod tests;

pub use self::ec2::Ec2;
