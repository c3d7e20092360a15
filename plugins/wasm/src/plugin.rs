//! Modules that were checked and compiled.

use crate::error::PluginError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Config, Engine, Module};

/// How often a guest under [`Meter::Time`] looks up.
pub const TICK: Duration = Duration::from_millis(1);
/// The largest module that is taken. To compile one takes time on the thread that asks, which no budget pays.
pub const MOST_MODULE_BYTES: usize = 4 << 20;
/// Bytes of stack for the calls of a guest. One that nests deeper traps.
pub const STACK_BYTES: usize = 256 << 10;
/// What is kept free of its stack for what Wasmtime itself does there.
const RESERVE_BYTES: usize = 256 << 10;

/// What is counted of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// Instructions, as ops of the task's budget: the same on every run.
    Ops,
    /// Nothing: the task looks up once per [`TICK`].
    Time,
}

/// Compiles modules for one meter.
#[derive(Debug)]
pub struct Plugins {
    engine: Engine,
    meter: Meter,
    ticks: Option<Arc<Ticks>>,
}

impl Plugins {
    /// An engine for guests under this meter.
    pub fn new(meter: Meter) -> Result<Self, PluginError> {
        let mut config = Config::new();
        config.consume_fuel(meter == Meter::Ops).epoch_interruption(meter == Meter::Time);
        config.signals_based_traps(false);
        config.async_stack_size(STACK_BYTES + RESERVE_BYTES).max_wasm_stack(STACK_BYTES);
        // No more address space than a guest uses: there may be thousands.
        config.memory_reservation(0).memory_guard_size(0).memory_reservation_for_growth(1 << 20);
        let engine = Engine::new(&config).map_err(|error| PluginError::Engine(format!("{error:#}")))?;
        let ticks = match meter {
            Meter::Ops => None,
            Meter::Time => Some(Arc::new(Ticks::start(&engine)?)),
        };
        Ok(Self { engine, meter, ticks })
    }

    /// Checks and compiles a module.
    pub fn compile(&self, wasm: &[u8]) -> Result<Plugin, PluginError> {
        if wasm.len() > MOST_MODULE_BYTES {
            return Err(PluginError::TooLarge { bytes: wasm.len() });
        }
        let module = Module::from_binary(&self.engine, wasm);
        let module = module.map_err(|error| PluginError::Malformed(format!("{error:#}")))?;
        Ok(Plugin { module, meter: self.meter, _ticks: self.ticks.clone() })
    }
}

/// A module that can be instantiated, any number of times and on any thread.
#[derive(Clone, Debug)]
pub struct Plugin {
    pub(crate) module: Module,
    pub(crate) meter: Meter,
    /// Guests are stopped as long as there are any.
    _ticks: Option<Arc<Ticks>>,
}

/// The thread that moves the epoch on.
#[derive(Debug)]
struct Ticks {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticks {
    fn start(engine: &Engine) -> Result<Self, PluginError> {
        let over = Arc::new(AtomicBool::new(false));
        let (engine, seen) = (engine.clone(), over.clone());
        let thread = std::thread::Builder::new().name("wasm-ticks".to_owned()).spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                engine.increment_epoch();
            }
        });
        let thread = thread.map_err(|error| PluginError::Engine(error.to_string()))?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}
