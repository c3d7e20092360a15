# The kernel's capabilities. Each has an enum of its methods, whose number is a request's `method_id`, and structs for
# parameters and results where a method has any: one unframed segment each. (They are structs and not Cap'n Proto
# interfaces because the code generated for those needs a hosted program.)
#
# `Console` and endpoint messages are bytes as they are: what they carry is not the kernel's to read. `note` writes its bytes
# to the debug console as one frame for the host (`core/abi/src/frame.rs`).
@0xb1f3a0c2d4e59687;

enum ConsoleMethod { write @0; read @1; note @2; }

enum TimerMethod {
  now   @0;   # -> TimerNow
  sleep @1;   # TimerSleep; refused beyond the process's quota of sleeps
}
struct TimerNow   { timeNs @0 :UInt64; }
struct TimerSleep { deadlineNs @0 :UInt64; }

enum LatencyClass { interactive @0; normal @1; batch @2; }

# Makes threads of the calling process.
enum ThreadSpawnerMethod { create @0; }   # ThreadCreate -> Handle
struct ThreadCreate {
  entry        @0 :UInt64;
  argument     @1 :UInt64;
  weight       @2 :UInt32 = 64;
  latencyClass @3 :LatencyClass = normal;
  # Service asked for at a time; 0 leaves that to the class.
  requestNs    @4 :UInt64;
  # Bit n for CPU n; 0 for all.
  cpus         @5 :UInt64;
  # A SchedulingPolicy capability, without which a thread gets at most the weight of its maker, and is served no sooner.
  policy       @6 :UInt32;
}
# `slot` is the thread's or process's place in the kernel's tables: what the flight record calls it. It is no authority.
struct Handle { cap @0 :UInt32; slot @1 :UInt32; }

# What a thread may do to itself.
enum ThreadControlMethod { setFsBase @0; yield @1; }   # SetFsBase; nothing
struct SetFsBase { base @0 :UInt64; }

# `join` takes a Deadline; the completion's result is the thread's exit code, as a signed number: negative if it was killed.
enum ThreadHandleMethod { join @0; detach @1; }
# A deadline of 0 is none.
struct Deadline { deadlineNs @0 :UInt64; }

# Waiting on words of the calling process's memory.
enum ParkSpaceMethod {
  wait @0;   # ParkWait; the completion's result is 0 when woken, 1 if the word was not `expected`
  wake @1;   # ParkWake; the completion's result is the number of waiters woken, 32 at most
}
struct ParkWait { address @0 :UInt64; expected @1 :UInt32; deadlineNs @2 :UInt64; }
struct ParkWake { address @0 :UInt64; count @1 :UInt32; }

# Starts programs of the boot image, with copies of capabilities of the caller.
enum ProcessSpawnerMethod { spawn @0; }   # ProcessSpawn -> Handle
struct Grant { name @0 :Text; cap @1 :UInt32; }
struct ProcessSpawn { program @0 :Text; arguments @1 :Text; grants @2 :List(Grant); }
# `wait` is as `join`.
enum ProcessHandleMethod { wait @0; kill @1; detach @2; }

# The calling process's address space, by whole pages.
enum VirtualMemoryMethod {
  map     @0;   # MemoryRange -> MemoryRange; somewhere if `address` is 0
  unmap   @1;   # MemoryRange; completes when no CPU has the old translations any more
  protect @2;   # MemoryRange; likewise
  createObject @3;   # MemoryRange (pages) -> Handle: memory that can be granted to others
  mapObject    @4;   # MapObject -> MemoryRange
  unmapObject  @5;   # MemoryRange (address); as unmap, for the whole object
}
struct MapObject { cap @0 :UInt32; access @1 :Access; }
# A MemoryObject has no methods of its own: it is mapped through the address space of whoever has it.
enum Access { read @0; write @1; execute @2; }
struct MemoryRange { address @0 :UInt64; pages @1 :UInt32; access @2 :Access; }

# The calling thread's own weight and latency class, and its account.
enum SchedulingPolicyMethod { setWeight @0; setLatencyClass @1; snapshot @2; }   # SetWeight; SetLatencyClass; -> Snapshot
struct SetWeight       { weight @0 :UInt64; }
struct SetLatencyClass { latencyClass @0 :LatencyClass; }
struct Snapshot {
  version @0 :UInt16;
  weight @1 :UInt16;
  latencyClass @2 :LatencyClass;
  runtimeNs @3 :UInt64;
  virtualRuntimeNs @4 :UInt64;
  lastStartedNs @5 :UInt64;
  voluntaryBlocks @6 :UInt64;
  preemptions @7 :UInt64;
  runnableAccumulatedNs @8 :UInt64;
}

# What the machine is and how it is doing. Reads only.
enum SystemInfoMethod {
  ringVersions @0;   # -> RingVersions
  memory       @1;   # -> Memory
  objects      @2;   # -> Objects
  cpu          @3;   # CpuNumber -> Cpu
  thread       @4;   # SlotNumber -> ThreadInfo; refused if nobody lives there
  process      @5;   # SlotNumber -> ProcessInfo; likewise
  beginCase    @6;   # CaseName -> Counts of the case that ends; refused but by a kernel that measures
}
struct CaseName { name @0 :Text; }
struct Counts { counts @0 :List(UInt64); }   # by Counter
# What a kernel that measures counts. Diagnostic: no decision reads any of it.
enum Counter {
  decisions @0;           # times that a core was asked who runs
  candidates @1;          # threads queued then, in all
  runs @2;                # decisions for a thread
  idles @3;               # decisions for none
  directSwitches @4;      # switches to the other side of a call, without asking
  switches @5;            # times that another thread was installed
  stealsTried @6;
  stealsMade @7;
  coreLocks @8;           # times that a core was locked
  coreLocksContended @9;  # of those, when somebody else had it
  serialBytes @10;
  timersInUserMode @11;
  timersInIdle @12;
  samplesLost @13;        # user instructions that there was no room for
  tableLoads @14;         # page tables loaded: CR3 written
  flushes @15;            # translations forgotten for others, or for oneself
  shootdowns @16;         # changes of page tables that others were told of
  wakeScans @17;          # looks for a CPU to tell of a thread that is ready
  idleEligible @18;       # idle CPUs that it might run on, found by them
  cpusTargeted @19;       # CPUs that one tried to tell
  ipisSent @20;
  ipisPending @21;        # not sent, since one was under way
  notReady @22;           # not sent, since the CPU does not schedule yet
  noLapic @23;            # not sent, since there is no such CPU
  sendFailures @24;       # sent, and the local APIC says that it failed
}
struct SlotNumber { slot @0 :UInt32; }
enum ThreadState { running @0; ready @1; asleep @2; moving @3; }
struct ThreadInfo {
  process @0 :UInt32;
  cpu @1 :UInt32;
  state @2 :ThreadState;
  weight @3 :UInt16;
  runtimeNs @4 :UInt64;
}
struct ProcessInfo { name @0 :Text; threads @1 :UInt32; pages @2 :UInt64; }
struct RingVersions { oldest @0 :UInt32; newest @1 :UInt32; }
struct Memory { freeFrames @0 :UInt64; totalFrames @1 :UInt64; heapUsed @2 :UInt64; hardPathAllocations @3 :UInt64; }
struct Objects { cpus @0 :UInt32; threads @1 :UInt32; processes @2 :UInt32; pendingWaits @3 :UInt32; }
struct CpuNumber { cpu @0 :UInt32; }
struct Cpu {
  timerInterrupts @0 :UInt64;
  ticks @1 :UInt64;
  ticksSuppressed @2 :UInt64;
  reschedulesReceived @3 :UInt64;
  reschedulesSent @4 :UInt64;
  reschedulesPending @5 :UInt64;
  steals @6 :UInt64;
  handoffs @7 :UInt64;
  handoffsQueued @8 :UInt64;
  idleNs @9 :UInt64;
  busyNs @10 :UInt64;
  timeouts @11 :UInt64;
  queueDepthMax @12 :UInt64;
  nohzEnterIdle @13 :UInt64;
  deadlineMisses @14 :UInt64;
  shootdowns @15 :UInt64;
  queued @16 :UInt64;
}

# CPU time that its holder may spend: so much in each period, kept by the kernel. The capability names one context by number and
# generation; a context that is gone is told as such, and a thread that had it goes on as best effort.
enum SchedulingContextMethod {
  create            @0;   # ContextCreate -> Handle: another one, which grants no more than this one
  info              @1;   # -> ContextInfo
  bindCallerThread  @2;   # the calling thread runs on it from now on; the thread must be on the context's CPU
  unbind            @3;   # the calling thread gives it up
  revoke            @4;   # it is gone, wherever it is
  drainNotifications @5;  # -> ContextNotices: the two cells, which are empty then
  wait              @6;   # Deadline; until there is something to drain, or it is gone
  release           @7;   # the capability is given up, and the calling thread's binding if it is to this context
}
enum OverrunPolicy { throttle @0; notify @1; }
struct ContextCreate {
  budgetNs   @0 :UInt64;
  periodNs   @1 :UInt64;
  # 0 for the period.
  deadlineNs @2 :UInt64;
  priority   @3 :UInt16;
  criticality @4 :UInt8;
  overrun    @5 :OverrunPolicy;
  # Bit n for CPU n; 0 for its creator's. Its time is set aside on the first of them on which every deadline holds.
  cpus       @6 :UInt64;
  # How often it may be lent on from call to call; 0 for as often as its creator's.
  depth      @7 :UInt8;
}
struct ContextInfo {
  id @0 :UInt32;
  generation @1 :UInt32;
  budgetNs @2 :UInt64;
  periodNs @3 :UInt64;
  deadlineNs @4 :UInt64;
  remainingNs @5 :UInt64;
  usedNs @6 :UInt64;
  depletions @7 :UInt64;
  misses @8 :UInt64;
  overshootMaxNs @9 :UInt64;
  # Where its time is set aside.
  cpu @10 :UInt32;
  # A thread holds it, whose time is charged to it.
  budgetEnforced @11 :Bool;
  bound @12 :Bool;
  # The capability is of an old generation: it can be used for nothing but this, and nothing remains.
  stale @13 :Bool;
  # It is on loan: another thread serves a call on it.
  lent @14 :Bool;
}
enum DrainStatus { ok @0; revoked @1; staleGeneration @2; }
enum ContextEnd { none @0; explicitRevoke @1; logout @2; ownerExit @3; islandEnd @4; }
struct ContextNotices {
  status @0 :DrainStatus;
  reason @1 :ContextEnd;
  depleted @2 :ContextNotice;
  deadline @3 :ContextNotice;
}
# `coalesced` of 0: nothing has happened since the last drain.
struct ContextNotice { sequence @0 :UInt32; coalesced @1 :UInt32; remainingNs @2 :UInt64; nextNs @3 :UInt64; donated @4 :Bool; }

# A login session: processes that are started in it belong to it, and so do the contexts that they are granted. When it ends, its
# contexts end; one that is on loan ends when it comes back.
enum UserSessionMethod {
  info   @0;   # -> SessionInfo
  logout @1;   # -> SessionLogout: the session ends, once
}
struct SessionInfo { id @0 :UInt64; live @1 :Bool; }
struct SessionLogout { staleMarked @0 :UInt32; donationInflightSkipped @1 :UInt32; }
