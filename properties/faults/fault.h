// SPDX-License-Identifier: Apache-2.0
// The switches of the plain implementation: at most one fault, or one control, at a time.
#pragma once

namespace attest {

// Names and descriptions: fault_catalogue.h. The order is that of the catalogue.
enum class Fault {
  kNone,

  // Empty rows and the arithmetic of infinities.
  kFullRowNan,
  kFullRowMeanOfV,
  kGuardOnOnePathOnly,
  kMaskViaInfProduct,
  // Finite numbers in the place of -infinity.
  kFinfoMinOverflowHalf,
  kSentinelBeatsRealScore,
  kMaskFillNearZero,
  kPlusInfinityFill,
  // What a mask means, masks that get lost, masks together.
  kBoolMaskAddedAsNumber,
  kMaskPolarityInverted,
  kFloatBiasThresholded,
  kCausalLostWhenWeightsRequested,
  kCausalNeedsAMask,
  kCausalAlwaysOn,
  kExplicitMaskIgnored,
  kMaskAfterSoftmax,
  kMaskMultipliesScores,
  kHoleyMaskAsLength,
  kMaskDroppedAsRedundant,
  // Indices into masks.
  kPaddingOnQueryAxis,
  kFirstRowOfChunkMask,
  kLaterBatchesEmpty,
  // Causal alignment.
  kCausalIgnoresPast,
  kCausalWrongCorner,
  kCausalSeesNext,
  kCausalDropsSelf,
  kDiagonalTileOnly,
  // Sliding windows.
  kWindowPlusOne,
  kWindowNegativeMeansAll,
  kWindowFutureLeak,
  kWindowNeedsAMask,
  kWindowFromPaddedEnd,
  // Partial tiles and loop bounds.
  kZeroFilledTailKeys,
  kTailGuardNeedsMask,
  kTailOfOne,
  kCausalLoopBoundShort,
  // Scale.
  kScaleMissing,
  kScaleFullModelDim,
  kScaleInverted,
  kScaleOnProbabilities,
  kScaleFromPaddedDim,
  kBiasScaledWithScores,
  // Soft cap.
  kSoftcapAfterMask,
  kSoftcapWrongFactor,
  kTanhByExponentials,
  kSoftcapBeforeScale,
  // ALiBi.
  kAlibiSign,
  kAlibiSlopeExponent,
  kAlibiLostInDecode,
  kZeroSlopeTimesNan,
  // Grouped heads.
  kGqaTiledHeads,
  kGqaWrongDivisor,
  // Range of the softmax.
  kNoMaxSubtraction,
  kConstantShift,
  kMaxSeedSmallestPositive,
  kMaxSeed5e4,
  // Online softmax.
  kCorrectionAliased,
  kMaskedTilePoisonsMax,
  // LSE and merging of partial results.
  kBase2LseMergedNatural,
  kMergeBothEmpty,
  kEmptyPartFiniteLse,
  kMergeRawExponentials,
  kPartialLseNotStored,
  kEmptyRowLseZero,
  // Sinks.
  kSinkWithPlaceholderMax,
  kSinkInOtherUnits,
  kPlusOneWithoutShift,
  // Low precision.
  kHalfScoresBeforeScale,
  kProbsRoundedBeforePv,
  kHalfDenominator,
  // Exponential function.
  kFastExponential,
  kExponentialClampedAtMin,
  // Memory of masked keys.
  kNanInUnusedValueSlot,
  kNanInMaskedKey,
  kCacheHole,
  // Layout, strides, head sizes.
  kStridesIgnored,
  kHeadDimFixed,
  kValueWidthFromKey,
  // Integer overflow in addresses.
  kInt32RowOffset,
  kInt32BatchOffset,
  kInt32MaskOffset,
  // Empty and short sequences.
  kZeroKeysUnwritten,
  kPaddedQueryRowsGarbage,
  // Dropout.
  kDropoutBackwardFactor,
  kDropoutInInference,
  // Backward pass.
  kBackwardIgnoresCausalFlag,
  kGroupedGradientNotSummed,
  kBiasGradientLastWriter,
  kBiasGradientZero,
  kEmptyRowNanGradient,
  kSplitBackwardPartialStatistics,
  kSoftmaxBackwardWithoutRowTerm,
  kDpContractsKeyWidth,
  kBiasOnlyGradient,
  // Repeatability.
  kSplitCountFromBatch,
  kAtomicOrder,
  kUnsynchronisedRowSum,
  // Returned weights.
  kWeightsAveragedOverHeads,
  // Encoder-decoder attention.
  kAdditivePadsAttended,
  kSoftmaxOverQueries,
  kSoftmaxOverSingleton,

  // Elementary faults, which nobody reports.
  kGradQWithoutScale,
  kAccumulatorNotRescaled,
  kLseWithoutMaximum,
  kValuesInReverseOrder,
  kLastKeyDropped,
  kKeyCountedTwice,
  kHeadOutputShifted,
  kScaleOffByOnePercent,
  kWeightsOffByOneThousandth,
  kExponentialOfTwelveBits,
  kAccumulationInBf16,
  kAccumulationInF16,
  kDenominatorInBf16,
  kStaleOutput,
  kSplitCountFromThreads,
};

// Right variants that look unusual.
enum class Control {
  kNone,
  kDropoutWeightsSum,
  kBottomRightZeroRows,
  kAlibiByColumn,
  kAlibiUniformOffset,
  kMaskAfterSoftmaxRenormalised,
  kRowTermFromOutput,
  kScaleSplitOverQAndK,
  kCausalCornerConvention,
  kLseBaseConvention,
  kFunctionalDropout,
  kSlopeTableConvention,
  kEmptyRowConvention,
  kModerateSentinel,
  kDenominatorOnlySink,
  kWindowAtDecode,
  kAtomicOrderDeclared,
  kRowConstantShift,
};

}  // namespace attest
