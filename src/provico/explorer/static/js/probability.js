// Which probability is shown, and what it may be called: calibrated only if it was.

export const hitProbability = (hit) => hit.calibrated_probability ?? hit.probability;

export const isCalibrated = (answer) =>
  answer.hits.length
    ? answer.hits.every(
        (hit) => hit.calibrated_probability !== null && hit.calibrated_probability !== undefined,
      )
    : Boolean(answer.calibration);

export const probabilityName = (answer) =>
  isCalibrated(answer) ? "Calibrated match probability" : "Match probability, uncalibrated";
